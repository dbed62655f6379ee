use oarlock::{Locks, Result};

#[oarlock::locked(name = "x", with = "lease")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
