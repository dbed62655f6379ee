use oarlock::{Locks, Result};

#[oarlock::locked(name = "x", timeout = "5s")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
