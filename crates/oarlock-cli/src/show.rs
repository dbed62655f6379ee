//! `inspect`, `list` and `doctor`: locks as people and programs want to see them.

use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use comfy_table::{Table, presets};
use oarlock::{FencingToken, Finding, Holder, ListQuery, LockStatus, LockValue, Locks, Mode, OwnerId, Waiter};
use serde::Serialize;

use crate::args::{DoctorArgs, InspectArgs, ListArgs};
use crate::exit::{CONFLICT, Failure};
use crate::output::{clean, print, print_json, say, shortened};

/// So many columns of a table at most are a value's.
const WIDEST_VALUE: usize = 40;

pub(crate) async fn inspect(args: &InspectArgs, locks: &Locks) -> Result<u8, Failure> {
    let status = locks.inspect(&args.name).await?;
    if args.json {
        print_json(&LockView::of(&status))?;
    } else if status.holder().is_none() && status.waiters.is_empty() {
        print("free\n")?;
    } else {
        let mut text = table(std::slice::from_ref(&status));
        for line in lines(&status) {
            text.push_str(&format!("{}\n", clean(&line)));
        }
        for (place, waiter) in status.waiters.iter().enumerate() {
            let owner = clean(&waiter.owner.to_string());
            text.push_str(&format!("waiting {}: {owner}{}\n", place + 1, beside(waiter.mode)));
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
    /// The first of those who hold it.
    holder: Option<HolderView<'a>>,
    holders: Vec<HolderView<'a>>,
    waiters: Vec<WaiterView<'a>>,
}

#[derive(Serialize)]
struct WaiterView<'a> {
    #[serde(flatten)]
    owner: OwnerView<'a>,
    mode: &'static str,
    /// How many permits it waits for; none of a lock.
    permits: Option<u32>,
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
    /// As text: it is beyond what JavaScript and others keep exactly of a number. None: another program holds the lock, and
    /// has none.
    token: Option<String>,
    /// What it shows.
    value: Option<&'a str>,
    /// Its owner has gone, and the hold goes on without it.
    kept: bool,
    /// `exclusive`, `shared` or `permits`.
    mode: &'static str,
    /// How many permits there are; none of a lock.
    of: Option<u32>,
    /// The numbers of those that it has.
    slots: &'a [u32],
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
            holders: status.holders.iter().map(HolderView::of).collect(),
            waiters: status.waiters.iter().map(WaiterView::of).collect(),
        }
    }
}

impl<'a> WaiterView<'a> {
    fn of(waiter: &'a Waiter) -> Self {
        let permits = waiter.mode.permits().map(|_| waiter.mode.weight());
        Self { owner: OwnerView::of(&waiter.owner), mode: mode(waiter.mode), permits }
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
            token: token(holder),
            value: holder.value.as_ref().map(LockValue::as_str),
            kept: holder.kept,
            mode: mode(holder.mode),
            of: holder.mode.permits(),
            slots: holder.slots.as_slice(),
        }
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Shared => "shared",
        Mode::Permits { .. } => "permits",
        _ => "exclusive",
    }
}

/// What is said behind somebody who does not want the lock alone.
fn beside(mode: Mode) -> String {
    match mode {
        Mode::Shared => ", shared".to_owned(),
        Mode::Permits { take, of } => format!(", {take} of {of} permits"),
        _ => String::new(),
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

/// The same, in which no name and no value takes more than so many columns.
pub(crate) fn table_of(locks: &[LockStatus], widest: usize) -> String {
    let mut head = vec!["NAME", "HOLDER", "HOST", "PID", "HELD FOR", "TIME LEFT", "TOKEN", "WAITERS"];
    // Most locks show none.
    let values = locks.iter().any(|lock| value_of(lock).is_some());
    if values {
        head.push("VALUE");
    }
    let mut table = plain_table(&head);
    for lock in locks {
        let mut row = vec![shortened(&clean(lock.name.as_str()), widest)];
        row.extend(lock.holder().map_or_else(|| ["-"; 6].map(String::from), holder_cells));
        if let Some(several) = several(lock) {
            row[1..].fill("-".to_owned());
            row[1] = several;
        }
        row.push(lock.waiters.len().to_string());
        if values {
            let value = value_of(lock).map_or("-", LockValue::as_str);
            row.push(shortened(&clean(value), widest.min(WIDEST_VALUE)));
        }
        table.add_row(row);
    }
    format!("{table}\n")
}

/// How a lock is held that is not one holder's alone.
fn several(lock: &LockStatus) -> Option<String> {
    let many = lock.holders.len();
    match lock.holder()?.mode {
        Mode::Shared => Some(format!("{many} shared")),
        Mode::Permits { of, .. } => {
            let held: u32 = lock.holders.iter().map(|holder| holder.mode.weight()).sum();
            Some(format!("{held} of {of} permits"))
        }
        _ => None,
    }
}

fn value_of(lock: &LockStatus) -> Option<&LockValue> {
    lock.holder()?.value.as_ref()
}

fn holder_cells(holder: &Holder) -> [String; 6] {
    let owner = &holder.owner;
    let label = owner.label().map_or_else(|| owner.to_string(), str::to_owned);
    [
        clean(&if holder.kept { format!("done by {label}") } else { label }),
        clean(owner.host().unwrap_or("-")),
        owner.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        rounded(holder.held_for),
        left(holder.remaining),
        token(holder).unwrap_or_else(|| "-".to_owned()),
    ]
}

fn token(holder: &Holder) -> Option<String> {
    (holder.token != Holder::NO_TOKEN).then(|| FencingToken::new(holder.token).to_string())
}

/// What the lock's line of the table has no room for, of each holder.
pub(crate) fn lines(lock: &LockStatus) -> Vec<String> {
    if several(lock).is_none() {
        return lock.holder().map(details).unwrap_or_default();
    }
    let line = |holder: &Holder| {
        let token = token(holder).map(|token| format!(", token {token}")).unwrap_or_default();
        let slots: Vec<_> = holder.slots.as_slice().iter().map(u32::to_string).collect();
        let slots = if slots.is_empty() { String::new() } else { format!(", slot {}", slots.join(" and ")) };
        format!("{}, {} left{slots}{token}", state(holder), left(holder.remaining))
    };
    lock.holders.iter().map(line).collect()
}

/// Who holds the lock, of several the first, and how many others.
pub(crate) fn states(lock: &LockStatus) -> String {
    let first = lock.holder().map(state).unwrap_or_default();
    match lock.holders.len() {
        0 | 1 => first,
        many => format!("{first}, and by {} more", many - 1),
    }
}

/// What a line of the table has no room for.
pub(crate) fn details(holder: &Holder) -> Vec<String> {
    let kept = holder.kept.then(|| state(holder));
    let value = holder.value.as_ref().map(|value| format!("value: {value}"));
    kept.into_iter().chain(value).collect()
}

/// Who holds a lock, and for how long.
pub(crate) fn state(holder: &Holder) -> String {
    let owner = clean(&holder.owner.to_string());
    if holder.kept {
        // Whoever it was has gone; what counts is when the lock is free.
        format!("done by {owner} for another {}", left(holder.remaining))
    } else {
        format!("held by {owner} for {}", rounded(holder.held_for))
    }
}

/// What is left of a hold, as people read it.
pub(crate) fn left(remaining: Duration) -> String {
    if remaining == Holder::ENDLESS { "endless".to_owned() } else { rounded(remaining) }
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

#[cfg(test)]
mod tests {
    use oarlock::{LockName, StoreToken};

    use super::*;

    fn lock(name: &str, owner: &str, value: Option<&str>) -> LockStatus {
        let owner = OwnerId::from_store(&format!("{owner}sh@host:7#00000000-0000-0000-0000-000000000000"));
        let (held_for, remaining) = (Duration::from_secs(3), Duration::from_secs(180));
        let holder = Holder::new(owner, StoreToken::new(9).unwrap(), held_for, remaining);
        let holder = holder.with_value(value.map(|value| LockValue::new(value).unwrap()));
        LockStatus::new(LockName::new(name).unwrap(), [holder], Vec::<OwnerId>::new())
    }

    #[test]
    fn a_value_has_a_column_where_there_is_one() {
        let (plain, showing) = (lock("a", "", None), lock("b", "", Some("http://a\u{1b}[2J\u{9b}")));
        assert!(!table(std::slice::from_ref(&plain)).contains("VALUE"));
        let table = table(&[plain, showing, lock("c", "", Some(&"x".repeat(4096)))]);
        assert!(table.contains("VALUE") && table.contains("http://a\u{fffd}[2J\u{fffd}"), "{table}");
        assert!(!table.chars().any(|c| c.is_control() && c != '\n'), "{table}");
        let lines: Vec<_> = table.lines().collect();
        assert!(
            lines.len() == 4 && lines[1].trim_end().ends_with('-') && lines[3].trim_end().ends_with("x…"),
            "{table}"
        );
        assert!(table_of(&[lock("b", "", Some("http://a"))], 5).contains("http…"));
    }

    #[test]
    fn no_token_is_shown_of_who_has_none() {
        let mut held = lock("a", "", None);
        let shown = |held: &LockStatus| serde_json::to_value(LockView::of(held)).unwrap()["holder"]["token"].clone();
        assert_eq!(shown(&held), "2304");
        held.holders[0].token = Holder::NO_TOKEN;
        assert!(shown(&held).is_null());
        let table = table(std::slice::from_ref(&held));
        assert_eq!(table.lines().nth(1).unwrap().split_whitespace().nth(6), Some("-"), "{table}");
    }

    #[test]
    fn a_kept_hold_is_done_for_another_while() {
        let kept = lock("a", "kept#", Some("v"));
        let holder = kept.holder().unwrap();
        assert_eq!(details(holder)[0], format!("{} for another 3m", state(holder).split_once(" for").unwrap().0));
        assert!(state(holder).starts_with("done by sh@host:7#") && details(holder)[1] == "value: v");
        assert!(table(std::slice::from_ref(&kept)).contains("done by sh"));
        let json = serde_json::to_value(LockView::of(&kept)).unwrap();
        assert_eq!(
            (&json["held"], &json["holder"]["kept"], &json["holder"]["value"]),
            (&true.into(), &true.into(), &"v".into())
        );
        let held = lock("a", "", None);
        assert!(
            state(held.holder().unwrap()).starts_with("held by sh@host:7#")
                && details(held.holder().unwrap()).is_empty()
        );
        let json = serde_json::to_value(LockView::of(&held)).unwrap();
        assert_eq!((&json["holder"]["kept"], json["holder"]["value"].is_null()), (&false.into(), true));
    }
}
