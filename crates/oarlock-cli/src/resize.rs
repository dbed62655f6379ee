//! `resize`: how many permits a semaphore has.

use oarlock::Locks;

use crate::exit::{CONFLICT, Failure};
use crate::output::say;

pub(crate) async fn resize(name: &str, permits: u32, locks: &Locks) -> Result<u8, Failure> {
    if locks.resize(name, permits).await? {
        return Ok(0);
    }
    say(format!("{name:?} is not in use: the first who asks for it says how many permits it has"));
    Ok(CONFLICT)
}
