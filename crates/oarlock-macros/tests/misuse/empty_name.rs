use oarlock::{Locks, Result};

#[oarlock::locked(name = "")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
