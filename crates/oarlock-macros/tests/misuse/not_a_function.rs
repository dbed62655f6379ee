#[oarlock::locked(name = "x")]
struct Ship;

fn main() {}
