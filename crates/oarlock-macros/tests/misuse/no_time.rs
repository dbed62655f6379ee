use oarlock::{Locks, Result};

#[oarlock::locked(name = "x", wait = "5 parsecs")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
