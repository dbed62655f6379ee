use oarlock::{Locks, Result};

#[oarlock::once(name = "x", name = "y", at_least = "5m")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
