use oarlock::{Locks, Result};

#[oarlock::once(name = "x", slot = "2026@1")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
