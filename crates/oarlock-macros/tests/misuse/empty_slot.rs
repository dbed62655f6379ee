use oarlock::{Locks, Result};

#[oarlock::once(name = "x", slot = "")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
