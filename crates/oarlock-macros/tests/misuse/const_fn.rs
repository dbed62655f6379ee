use oarlock::{Locks, Result};

#[oarlock::locked(name = "x")]
const fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
