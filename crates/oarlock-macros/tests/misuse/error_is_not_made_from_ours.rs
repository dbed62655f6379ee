use oarlock::{Locks, Result};

struct Failure;

#[oarlock::locked(name = "x")]
async fn ship(locks: &Locks) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
