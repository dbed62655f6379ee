use oarlock::Locks;

#[oarlock::once(name = "x", at_least = "5m")]
async fn ship(locks: &Locks) {}

fn main() {}
