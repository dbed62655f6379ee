//! `evict`: ends a hold by force, after asking.

use std::io::{self, BufRead, IsTerminal, Write};

use oarlock::{Holder, Locks};
use serde::Serialize;

use crate::args::EvictArgs;
use crate::exit::{CONFLICT, Failure, USAGE};
use crate::output::{clean, print, print_json, say};
use crate::show::{HolderView, state};

pub(crate) async fn evict(args: &EvictArgs, locks: &Locks) -> Result<u8, Failure> {
    if !args.yes && !io::stdin().is_terminal() {
        return Err(Failure::new(USAGE, "evict asks first, and this is not a terminal: say --yes"));
    }
    let status = locks.inspect(&args.name).await?;
    let meant = meant(args, status.holders)?;
    let Some(first) = meant.first() else { return answer(args, &[], locks) };
    if !args.yes && !confirmed(&args.name, &meant)? {
        return Err(Failure::new(CONFLICT, format!("{:?} was left alone", args.name)));
    }
    let evicted = match args.owner {
        Some(_) => locks.evict_owner(&args.name, &first.owner).await?.into_iter().collect(),
        None if args.yes => several(locks.evict(&args.name).await?, meant),
        None => several(end(&args.name, first, locks).await?, meant),
    };
    answer(args, &evicted, locks)
}

/// Those whose holds are to be ended.
fn meant(args: &EvictArgs, holders: Vec<Holder>) -> Result<Vec<Holder>, Failure> {
    let Some(owner) = &args.owner else { return Ok(holders) };
    let named: Vec<_> = holders.into_iter().filter(|holder| holder.owner.to_string().starts_with(owner)).collect();
    if named.len() > 1 {
        let wrong = format!("--owner {owner:?} is {} of the holders of {:?}: write more of it", named.len(), args.name);
        return Err(Failure::new(USAGE, wrong));
    }
    Ok(named)
}

/// Whoever was evicted: with one of several who hold a lock together, all of them.
fn several(evicted: Option<Holder>, held: Vec<Holder>) -> Vec<Holder> {
    match evicted {
        Some(one) if held.len() < 2 => vec![one],
        Some(_) => held,
        None => Vec::new(),
    }
}

/// Ends this holder's hold, and those of all who share it. Whoever was asked about it answered for that holder, not for one who
/// came next meanwhile.
pub(crate) async fn end(name: &str, holder: &Holder, locks: &Locks) -> Result<Option<Holder>, Failure> {
    let now = locks.inspect(name).await?.holders;
    if !now.is_empty() && now.iter().all(|now| now.owner != holder.owner) {
        return Err(Failure::new(CONFLICT, format!("{name:?} has another holder by now: look again")));
    }
    Ok(locks.evict(name).await?)
}

fn confirmed(name: &str, holders: &[Holder]) -> Result<bool, Failure> {
    let mut stderr = io::stderr();
    for holder in holders {
        write!(stderr, "{}. ", held(name, holder))?;
    }
    write!(stderr, "{}? [y/N] ", if holders.len() == 1 { "End this hold" } else { "End these holds" })?;
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
    /// The first of those who lost it.
    holder: Option<HolderView<'a>>,
    holders: Vec<HolderView<'a>>,
}

fn answer(args: &EvictArgs, evicted: &[Holder], locks: &Locks) -> Result<u8, Failure> {
    if args.json {
        print_json(&Answer {
            name: &args.name,
            evicted: !evicted.is_empty(),
            holder: evicted.first().map(HolderView::of),
            holders: evicted.iter().map(HolderView::of).collect(),
        })?;
    } else {
        for holder in evicted {
            print(&format!("ended the hold of {}\n", clean(&holder.owner.to_string())))?;
        }
        match (evicted.first(), &args.owner) {
            (Some(holder), _) => {
                let overlap = if holder.kept { "" } else { "; another may have the lock before" };
                say(format!("{}{overlap}", told(holder, locks)));
            }
            (None, Some(owner)) => say(format!("{:?} is not held by {owner:?}", args.name)),
            (None, None) => say(format!("{:?} is not held", args.name)),
        }
    }
    Ok(if evicted.is_empty() { CONFLICT } else { 0 })
}
