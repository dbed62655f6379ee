use oarlock::{Locks, Result};

#[oarlock::locked(name = id)]
async fn ship(locks: &Locks, id: u64) -> Result<()> {
    Ok(())
}

fn main() {}
