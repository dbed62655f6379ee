//! `evict`: ends a hold by force, after asking.

use std::io::{self, BufRead, IsTerminal, Write};

use oarlock::{Holder, Locks};
use serde::Serialize;

use crate::args::EvictArgs;
use crate::exit::{CONFLICT, Failure, USAGE};
use crate::output::{clean, print, print_json, say};
use crate::show::{HolderView, rounded};

pub(crate) async fn evict(args: &EvictArgs, locks: &Locks) -> Result<u8, Failure> {
    if !args.yes {
        if !io::stdin().is_terminal() {
            return Err(Failure::new(USAGE, "evict asks first, and this is not a terminal: say --yes"));
        }
        let Some(holder) = locks.inspect(&args.name).await?.holder else { return answer(args, None) };
        if !confirmed(&args.name, &holder)? {
            return Err(Failure::new(CONFLICT, format!("{:?} was left alone", args.name)));
        }
        // The answer was about that holder, not about whoever came next while it was being given.
        let now = locks.inspect(&args.name).await?.holder;
        if now.is_some_and(|now| now.owner != holder.owner) {
            return Err(Failure::new(CONFLICT, format!("{:?} has another holder by now: look again", args.name)));
        }
    }
    answer(args, locks.evict(&args.name).await?.as_ref())
}

fn confirmed(name: &str, holder: &Holder) -> Result<bool, Failure> {
    let mut stderr = io::stderr();
    let (owner, since) = (clean(&holder.owner.to_string()), rounded(holder.held_for));
    write!(stderr, "{name:?} is held by {owner} for {since}. End this hold? [y/N] ")?;
    stderr.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

#[derive(Serialize)]
struct Answer<'a> {
    name: &'a str,
    evicted: bool,
    holder: Option<HolderView<'a>>,
}

fn answer(args: &EvictArgs, evicted: Option<&Holder>) -> Result<u8, Failure> {
    if args.json {
        print_json(&Answer { name: &args.name, evicted: evicted.is_some(), holder: evicted.map(HolderView::of) })?;
    } else if let Some(holder) = evicted {
        print(&format!("ended the hold of {}\n", clean(&holder.owner.to_string())))?;
        say("it learns of that at its next renewal, within a third of its lease; another may have the lock before");
    } else {
        say(format!("{:?} is not held", args.name));
    }
    Ok(if evicted.is_some() { 0 } else { CONFLICT })
}
