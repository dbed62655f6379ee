use oarlock::{Locks, Result};

#[oarlock::once(name = "x")]
async fn ship(locks: &Locks) -> Result<()> {
    Ok(())
}

fn main() {}
