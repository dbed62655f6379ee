use oarlock::{Locks, Result};

#[oarlock::locked(name = "x", slot = "1")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
