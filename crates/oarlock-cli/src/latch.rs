//! `latch`: to arrive, and to wait until all have.

use oarlock::Locks;

use crate::args::LatchArgs;
use crate::exit::{CONFLICT, Failure};
use crate::output;
use crate::run::unless_interrupted;

pub(crate) async fn latch(args: &LatchArgs, locks: &Locks) -> Result<u8, Failure> {
    let mut latch = locks.latch(args.name.as_str(), args.of).generation(args.generation).keep(args.keep);
    if let Some(wait) = args.wait {
        latch = latch.within(wait);
    }
    if let Some(party) = &args.arrive {
        let arrived = unless_interrupted(latch.arrive(party)).await??;
        output::print(&format!("{} of {} have arrived\n", arrived.arrived, arrived.of))?;
    }
    if args.wait.is_some() {
        unless_interrupted(latch.wait()).await??;
        return Ok(0);
    }
    if args.arrive.is_some() {
        return Ok(0);
    }
    let arrived = unless_interrupted(latch.arrived()).await??;
    let count = arrived.len();
    let who = if arrived.is_empty() { String::new() } else { format!(": {}", output::clean(&arrived.join(", "))) };
    output::print(&format!("{count} of {} have arrived{who}\n", args.of))?;
    Ok(if count >= args.of as usize { 0 } else { CONFLICT })
}
