use oarlock::Locks;

#[oarlock::locked(name = "x")]
async fn ship(locks: &Locks) -> u64 {
    7
}

fn main() {}
