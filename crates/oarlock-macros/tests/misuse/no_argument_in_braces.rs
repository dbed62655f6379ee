use oarlock::{Locks, Result};

#[oarlock::locked(name = "orders/{}")]
async fn ship(locks: &Locks, id: u64) -> Result<()> {
    Ok(())
}

fn main() {}
