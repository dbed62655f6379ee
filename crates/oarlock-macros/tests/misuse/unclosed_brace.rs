use oarlock::{Locks, Result};

#[oarlock::once(name = "orders", slot = "{id")]
async fn ship(locks: &Locks, id: u64) -> Result<()> {
    Ok(())
}

fn main() {}
