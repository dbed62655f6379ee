use oarlock::Result;

#[oarlock::locked(name = "x")]
async fn ship(id: u64) -> Result<()> {
    Ok(())
}

fn main() {}
