use oarlock::{Locks, Result};

struct Order {
    id: u64,
}

#[oarlock::locked(name = "orders/{order.id()}")]
async fn ship(locks: &Locks, order: Order) -> Result<()> {
    Ok(())
}

fn main() {}
