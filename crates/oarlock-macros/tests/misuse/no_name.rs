use oarlock::{Locks, Result};

#[oarlock::locked(wait = "5s")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
