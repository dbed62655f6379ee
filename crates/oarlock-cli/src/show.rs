//! `inspect`, `list` and `doctor`: locks as people and programs want to see them.

use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use comfy_table::{Table, presets};
use oarlock::{FencingToken, Finding, Holder, ListQuery, LockStatus, Locks, OwnerId};
use serde::Serialize;

use crate::args::{DoctorArgs, InspectArgs, ListArgs};
use crate::exit::{CONFLICT, Failure};
use crate::output::{clean, print, print_json, say, shortened};

pub(crate) async fn inspect(args: &InspectArgs, locks: &Locks) -> Result<u8, Failure> {
    let status = locks.inspect(&args.name).await?;
    if args.json {
        print_json(&LockView::of(&status))?;
    } else if status.holder().is_none() && status.waiters.is_empty() {
        print("free\n")?;
    } else {
        let mut text = table(std::slice::from_ref(&status));
        for (place, waiter) in status.waiters.iter().enumerate() {
            text.push_str(&format!("waiting {}: {}\n", place + 1, clean(&waiter.owner.to_string())));
        }
        print(&text)?;
    }
    Ok(if args.exit_code && status.holder().is_none() { CONFLICT } else { 0 })
}

pub(crate) async fn list(args: &ListArgs, locks: &Locks) -> Result<u8, Failure> {
    let found = all(&args.prefix, locks).await?;
    if args.json {
        print_json(&found.iter().map(LockView::of).collect::<Vec<_>>())?;
    } else if found.is_empty() && io::stdout().is_terminal() {
        say("no locks are held or waited for");
    } else {
        print(&table(&found))?;
    }
    Ok(0)
}

/// All that are held or waited for under a prefix.
pub(crate) async fn all(prefix: &str, locks: &Locks) -> oarlock::Result<Vec<LockStatus>> {
    let mut query = ListQuery::new(prefix);
    let mut found = Vec::new();
    loop {
        let page = locks.list(&query).await?;
        found.extend(page.locks);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(found),
        }
    }
}

pub(crate) async fn doctor(args: &DoctorArgs, locks: &Locks) -> Result<u8, Failure> {
    let findings = locks.doctor().await?;
    if args.json {
        print_json(&findings.iter().map(FindingView::of).collect::<Vec<_>>())?;
    } else if findings.is_empty() {
        print("no setting voids a promise\n")?;
    } else {
        let mut table = plain_table(&["SETTING", "VOIDS", "ADVICE"]);
        for finding in &findings {
            table.add_row([&finding.setting, &finding.voids, &finding.advice].map(|text| clean(text)));
        }
        print(&format!("{table}\n"))?;
    }
    Ok(if findings.is_empty() { 0 } else { CONFLICT })
}

/// A lock as JSON. The names of the fields are a promise.
#[derive(Serialize)]
pub(crate) struct LockView<'a> {
    name: &'a str,
    held: bool,
    holder: Option<HolderView<'a>>,
    waiters: Vec<OwnerView<'a>>,
}

#[derive(Serialize)]
pub(crate) struct OwnerView<'a> {
    label: Option<&'a str>,
    host: Option<&'a str>,
    pid: Option<u32>,
    /// The short form, which cannot release the lock.
    owner: String,
}

#[derive(Serialize)]
pub(crate) struct HolderView<'a> {
    #[serde(flatten)]
    owner: OwnerView<'a>,
    since: String,
    held_for_ms: u64,
    /// None: it has no lease.
    remaining_ms: Option<u64>,
    /// As text: it is beyond what JavaScript and others keep exactly of a number.
    token: String,
}

#[derive(Serialize)]
struct FindingView<'a> {
    setting: &'a str,
    voids: &'a str,
    advice: &'a str,
}

impl<'a> LockView<'a> {
    fn of(status: &'a LockStatus) -> Self {
        Self {
            name: status.name.as_str(),
            held: status.holder().is_some(),
            holder: status.holder().map(HolderView::of),
            waiters: status.waiters.iter().map(|waiter| OwnerView::of(&waiter.owner)).collect(),
        }
    }
}

impl<'a> OwnerView<'a> {
    fn of(owner: &'a OwnerId) -> Self {
        Self { label: owner.label(), host: owner.host(), pid: owner.pid(), owner: owner.to_string() }
    }
}

impl<'a> HolderView<'a> {
    pub(crate) fn of(holder: &'a Holder) -> Self {
        let since = SystemTime::now().checked_sub(holder.held_for).unwrap_or(SystemTime::UNIX_EPOCH);
        Self {
            owner: OwnerView::of(&holder.owner),
            since: humantime::format_rfc3339_millis(since).to_string(),
            held_for_ms: millis(holder.held_for),
            remaining_ms: (holder.remaining < Holder::ENDLESS).then(|| millis(holder.remaining)),
            token: FencingToken::new(holder.token).to_string(),
        }
    }
}

impl<'a> FindingView<'a> {
    fn of(finding: &'a Finding) -> Self {
        Self { setting: &finding.setting, voids: &finding.voids, advice: &finding.advice }
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Locks as a table, a line each below its head.
pub(crate) fn table(locks: &[LockStatus]) -> String {
    table_of(locks, usize::MAX)
}

/// The same, in which no name takes more than so many columns.
pub(crate) fn table_of(locks: &[LockStatus], widest: usize) -> String {
    let mut table = plain_table(&["NAME", "HOLDER", "HOST", "PID", "HELD FOR", "TIME LEFT", "TOKEN", "WAITERS"]);
    for lock in locks {
        let mut row = vec![shortened(&clean(lock.name.as_str()), widest)];
        row.extend(lock.holder().map_or_else(|| ["-"; 6].map(String::from), holder_cells));
        row.push(lock.waiters.len().to_string());
        table.add_row(row);
    }
    format!("{table}\n")
}

fn holder_cells(holder: &Holder) -> [String; 6] {
    let owner = &holder.owner;
    let label = owner.label().map_or_else(|| owner.to_string(), str::to_owned);
    [
        clean(&label),
        clean(owner.host().unwrap_or("-")),
        owner.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        rounded(holder.held_for),
        if holder.remaining == Holder::ENDLESS { "endless".to_owned() } else { rounded(holder.remaining) },
        FencingToken::new(holder.token).to_string(),
    ]
}

/// In whole seconds, as people read it.
pub(crate) fn rounded(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

fn plain_table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head.iter().copied());
    table
}
