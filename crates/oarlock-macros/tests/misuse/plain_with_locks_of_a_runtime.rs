use oarlock::{Locks, Result};

#[oarlock::locked(name = "x")]
fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
