//! `evict`: ends a hold by force, after asking.

use std::io::{self, BufRead, IsTerminal, Write};

use oarlock::{Holder, Locks};
use serde::Serialize;

use crate::args::EvictArgs;
use crate::exit::{CONFLICT, Failure, USAGE};
use crate::output::{clean, print, print_json, say};
use crate::show::{HolderView, state};

pub(crate) async fn evict(args: &EvictArgs, locks: &Locks) -> Result<u8, Failure> {
    let evicted = if args.yes {
        locks.evict(&args.name).await?
    } else {
        if !io::stdin().is_terminal() {
            return Err(Failure::new(USAGE, "evict asks first, and this is not a terminal: say --yes"));
        }
        let Some(holder) = locks.inspect(&args.name).await?.into_holder() else { return answer(args, None, locks) };
        if !confirmed(&args.name, &holder)? {
            return Err(Failure::new(CONFLICT, format!("{:?} was left alone", args.name)));
        }
        end(&args.name, &holder, locks).await?
    };
    answer(args, evicted.as_ref(), locks)
}

/// Ends this holder's hold. Whoever was asked about it answered for that holder, not for one who came next meanwhile.
pub(crate) async fn end(name: &str, holder: &Holder, locks: &Locks) -> Result<Option<Holder>, Failure> {
    let now = locks.inspect(name).await?.into_holder();
    if now.is_some_and(|now| now.owner != holder.owner) {
        return Err(Failure::new(CONFLICT, format!("{name:?} has another holder by now: look again")));
    }
    Ok(locks.evict(name).await?)
}

fn confirmed(name: &str, holder: &Holder) -> Result<bool, Failure> {
    let mut stderr = io::stderr();
    write!(stderr, "{}. End this hold? [y/N] ", held(name, holder))?;
    stderr.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// What the question is about.
pub(crate) fn held(name: &str, holder: &Holder) -> String {
    format!("{name:?} is {}", state(holder))
}

/// What comes after an eviction.
pub(crate) fn told(holder: &Holder, locks: &Locks) -> &'static str {
    match locks.capabilities().prompt_loss {
        _ if holder.kept => "it went on without its owner; now the lock can be taken again",
        true => "its holder learns of that at once, if the store can reach it",
        false => "its holder learns of that at its next renewal, within a third of its lease",
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    name: &'a str,
    evicted: bool,
    holder: Option<HolderView<'a>>,
}

fn answer(args: &EvictArgs, evicted: Option<&Holder>, locks: &Locks) -> Result<u8, Failure> {
    if args.json {
        print_json(&Answer { name: &args.name, evicted: evicted.is_some(), holder: evicted.map(HolderView::of) })?;
    } else if let Some(holder) = evicted {
        print(&format!("ended the hold of {}\n", clean(&holder.owner.to_string())))?;
        let overlap = if holder.kept { "" } else { "; another may have the lock before" };
        say(format!("{}{overlap}", told(holder, locks)));
    } else {
        say(format!("{:?} is not held", args.name));
    }
    Ok(if evicted.is_some() { 0 } else { CONFLICT })
}
