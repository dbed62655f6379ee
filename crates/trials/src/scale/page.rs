//! The page of what grows: docs/scale.md.

use std::fmt::Write;

use clap::ValueEnum;

use super::{Crowd, Record, Stairs, Step};
use crate::guarantees::wrap;

pub(crate) fn page(record: &Record) -> String {
    let days = record.values().flat_map(|stores| stores.values()).map(|stairs| stairs.on.as_str());
    let days = match [days.clone().min(), days.max()] {
        [Some(first), Some(last)] if first != last => format!("from {first} to {last}"),
        [_, last] => format!("on {}", last.unwrap_or_default()),
    };
    let mut page = include_str!("page.md").replace("{days}", &days);
    for &crowd in Crowd::value_variants() {
        let Some(stores) = record.get(&crowd) else { continue };
        let (title, what) = crowd.titles();
        let numbers = crowd.numbers();
        let _ = write!(page, "\n## {title}\n\n{what}\n\n| store |");
        for &number in numbers {
            let _ = write!(page, " {} |", thousands(number));
        }
        let _ = writeln!(page, " growth |\n| --- |{} --- |", " ---: |".repeat(numbers.len()));
        for (store, stairs) in stores {
            let _ = write!(page, "| {store} |");
            for at in 0..numbers.len() {
                let time = stairs.steps.get(at).map_or("–".to_owned(), |step| time(step.time));
                let _ = write!(page, " {time} |");
            }
            let _ = writeln!(page, " {} |", growth(&stairs.steps));
        }
        let _ = writeln!(page, "\nWith the fewest above one, and with the most that a store reached:\n");
        let names: Vec<_> = COSTS[1..].iter().map(|cost| cost.name).collect();
        let _ = writeln!(page, "| store | number | {} |\n| --- |{}", names.join(" | "), " ---: |".repeat(COSTS.len()));
        for (store, stairs) in stores {
            if let Some((first, last)) =
                ends_of(stairs.steps.iter()).or_else(|| stairs.steps.last().map(|one| (one, one)))
            {
                let _ = writeln!(page, "| {store} | {} |", columns(first, last));
            }
        }
        page += &faster(crowd, stores.iter());
        page += &ends(stores.iter());
    }
    wrap(&page)
}

/// What an operation or one more of a crowd costs.
struct Cost {
    name: &'static str,
    of: fn(&Step) -> f64,
    shown: fn(f64) -> String,
    /// Less than this is not told from nothing.
    least: f64,
    /// Less than this of all together is within what a process has free.
    in_all: f64,
}

/// The first is the time, which the page has for every number.
const COSTS: [Cost; 6] = [
    Cost { name: "time", of: |step| step.time, shown: time, least: 0.0, in_all: 0.0 },
    Cost { name: "segments", of: |step| step.segments, shown: count, least: 1.0, in_all: 0.0 },
    Cost { name: "servers' time", of: |step| step.server_cpu, shown: time, least: 100.0, in_all: 0.0 },
    Cost { name: "client's time", of: |step| step.client_cpu, shown: time, least: 100.0, in_all: 0.0 },
    Cost { name: "servers' memory", of: |step| step.server_bytes, shown: bytes, least: 1_000.0, in_all: 1e6 },
    Cost { name: "client's memory", of: |step| step.client_bytes, shown: bytes, least: 1_000.0, in_all: 1e6 },
];

/// Why some costs grow faster than the logarithm.
const REASONS: [(&[Crowd], &str, &[&str], &str); 13] = [
    (
        &[Crowd::ClientsOfOne, Crowd::ClientsApart],
        "etcd",
        &["client's memory"],
        "a connection takes a tenth of a megabyte, and the first hundred fit mostly into what the process has free",
    ),
    (&[Crowd::ClientsOfOne], "memcached", &["segments"], "it has no line, so waiters ask again and again"),
    (
        &[Crowd::ClientsOfOne, Crowd::ClientsApart],
        "mysql-session",
        &["time", "segments", "servers' time"],
        "a client gets a few grants only, so opening its connections weighs; the server has a thread for each",
    ),
    (
        &[Crowd::ClientsOfOne],
        "postgres",
        &["time", "servers' time"],
        "each client has a connection that listens, and a notification wakes the server's processes of all of them",
    ),
    (
        &[Crowd::ClientsOfOne],
        "sqlite",
        &["time", "client's time"],
        "each waiting client reads the file once a second, in case nobody wakes it, and a thousand share two cores",
    ),
    (
        &[Crowd::ClientsOfOne],
        "zookeeper",
        &["segments", "client's time", "client's memory"],
        "each of a thousand clients reads the line when it joins, and gets the lock once at most",
    ),
    (
        &[Crowd::ClientsApart],
        "mysql",
        &["time", "servers' time"],
        "each client has connections of its own, and the server has a thread for each",
    ),
    (
        &[Crowd::Waiters],
        "etcd",
        &["servers' time"],
        "whoever joins asks for the nearest ahead, for which etcd sorts the whole line by age",
    ),
    (
        &[Crowd::Waiters],
        "mysql-session",
        &["servers' time"],
        "each waiter has a connection, and the server a thread for it",
    ),
    (
        &[Crowd::Waiters],
        "postgres-session",
        &["time"],
        "each waiter has a connection, and the server a process for it: a hundred share two cores",
    ),
    (
        &[Crowd::Waiters],
        "redis",
        &["client's memory"],
        "a waiter takes eight kilobytes, and the first thousands fit into what the process has free",
    ),
    (
        &[Crowd::Waiters],
        "sqlite",
        &["time", "client's time"],
        "each waiter reads the file once a second, in case nobody wakes it",
    ),
    (
        &[Crowd::Held],
        "postgres-session",
        &["servers' time", "client's time"],
        "each lock that is held has a connection, and the server a process for it: a thousand share two cores",
    ),
];

/// Which costs grow faster than the logarithm, and why.
fn faster<'a>(crowd: Crowd, stores: impl Iterator<Item = (&'a String, &'a Stairs)>) -> String {
    let mut lines = String::new();
    for (store, stairs) in stores {
        let mut by_reason = Vec::<(&str, Vec<&str>)>::new();
        for cost in COSTS {
            if grown(&stairs.steps, &cost).is_some_and(|(grown, allowed)| grown > allowed) {
                let known = REASONS
                    .iter()
                    .find(|(of, its, costs, _)| of.contains(&crowd) && its == store && costs.contains(&cost.name));
                let why = known.map_or("nobody knows why", |(.., why)| why);
                match by_reason.last_mut() {
                    Some((same, costs)) if *same == why => costs.push(cost.name),
                    _ => by_reason.push((why, vec![cost.name])),
                }
            }
        }
        for (why, costs) in by_reason {
            let _ = writeln!(lines, "- {store}, {}: {why}.", costs.join(", "));
        }
    }
    if lines.is_empty() { lines } else { format!("\nThese grow faster than the logarithm:\n\n{lines}") }
}

/// Why a store went no higher.
fn ends<'a>(stores: impl Iterator<Item = (&'a String, &'a Stairs)>) -> String {
    // Where a file was for the moment says nothing.
    let told = |why: &str| {
        let words = why.split(' ').map(|word| if word.starts_with("/dev/shm/") { "(…)" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    let ends = stores.filter_map(|(store, stairs)| Some(format!("- {store}: {}\n", told(stairs.ended.as_ref()?))));
    let ends: String = ends.collect();
    if ends.is_empty() { ends } else { format!("\nWhere a store stopped, and why:\n\n{ends}") }
}

/// How the time grew from the first number above one to the last, and what the logarithm would allow.
fn growth(steps: &[Step]) -> String {
    grown(steps, &COSTS[0]).map_or_else(String::new, |(grown, allowed)| format!("{grown:.2} of {allowed:.2}"))
}

fn grown(steps: &[Step], cost: &Cost) -> Option<(f64, f64)> {
    let enough = |step: &&Step| (cost.of)(step) * step.number as f64 >= cost.in_all;
    let (first, last) = ends_of(steps.iter().filter(enough))?;
    let allowed = (last.number as f64).ln() / (first.number as f64).ln();
    Some(((cost.of)(last) / (cost.of)(first).max(cost.least), allowed))
}

/// The steps with the fewest above one, and with the most.
fn ends_of<'a>(steps: impl DoubleEndedIterator<Item = &'a Step> + Clone) -> Option<(&'a Step, &'a Step)> {
    let (first, last) = steps.clone().find(|step| step.number > 1).zip(steps.last())?;
    (first.number != last.number).then_some((first, last))
}

/// What is told while it is measured.
pub(crate) fn line(step: &Step) -> String {
    format!("{} | {}", time(step.time), columns(step, step))
}

/// The numbers of two steps, and all their costs but the time.
fn columns(first: &Step, last: &Step) -> String {
    let numbers = both(thousands(first.number), thousands(last.number));
    let costs = COSTS[1..].iter().map(|Cost { of, shown, .. }| both(shown(of(first)), shown(of(last))));
    [numbers].into_iter().chain(costs).collect::<Vec<_>>().join(" | ")
}

/// From the first to the last, with the unit once if they have the same.
fn both(first: String, last: String) -> String {
    match (first.split_once(' '), last.split_once(' ')) {
        _ if first == last => last,
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} to {last}"),
        _ => format!("{first} to {last}"),
    }
}

fn count(number: f64) -> String {
    if number < 9.95 { format!("{number:.1}") } else { format!("{number:.0}") }
}

fn time(microseconds: f64) -> String {
    match microseconds {
        ..10.0 => format!("{microseconds:.1} µs"),
        ..1_000.0 => format!("{microseconds:.0} µs"),
        ..10_000.0 => format!("{:.1} ms", microseconds / 1e3),
        _ => format!("{:.0} ms", microseconds / 1e3),
    }
}

fn bytes(bytes: f64) -> String {
    match bytes {
        ..10_000.0 => format!("{bytes:.0} B"),
        ..1_000_000.0 => format!("{:.0} kB", bytes / 1e3),
        _ => format!("{:.1} MB", bytes / 1e6),
    }
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}

impl Crowd {
    fn titles(self) -> (&'static str, &'static str) {
        match self {
            Self::ClientsOfOne => (
                "Clients that take one lock in turn",
                "The time from one grant to the next: five seconds divided by the grants of all. Memory is that of one client.",
            ),
            Self::ClientsApart => (
                "Clients that take a lock each",
                "Five seconds divided by the grants of all clients. Memory is that of one client.",
            ),
            Self::Waiters => (
                "Waiters for one lock",
                "From the request for the release to the next waiter's grant. Whoever was served joins the line again, which is \
                 part of the rest. Memory is that of one waiter. At ZooKeeper, each waiter reads the whole line once, so \
                 what a thousand leave behind in the client grows with the line.",
            ),
            Self::Held => ("Held locks", "One lock is taken and given back beside so many that are held."),
            Self::Free => ("Free locks", "One lock is taken and given back after so many names were used once."),
            Self::Kept => (
                "Kept locks",
                "One lock is taken and given back beside so many that one client keeps, with leases of ten seconds. The rest \
                 is what one kept lock costs in one second.",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_told_beside_the_logarithm() {
        let step = |number, time| Step { number, time, ..Step::default() };
        assert_eq!(growth(&[step(1, 1.0), step(10, 50.0), step(1000, 100.0)]), "2.00 of 3.00");
        assert_eq!(growth(&[step(1, 1.0), step(10, 50.0)]), "");
        assert_eq!([time(9.94), time(999.0), time(1500.0)], ["9.9 µs", "999 µs", "1.5 ms"]);
        assert_eq!(both("3.4 ms".into(), "8.1 ms".into()), "3.4 to 8.1 ms");
        assert_eq!(both("986 µs".into(), "1.1 ms".into()), "986 µs to 1.1 ms");
        assert_eq!([both("7".into(), "8".into()), both("7 B".into(), "7 B".into())], ["7 to 8", "7 B"]);
        assert_eq!([thousands(7), thousands(1_000_000)], ["7", "1,000,000"]);
        let stairs = Stairs {
            on: "2026-11-26".to_owned(),
            steps: vec![step(10, 5.0)],
            ended: Some("100 take longer".to_owned()),
        };
        let stores = [("redis".to_owned(), stairs)].into();
        let page = page(&[(Crowd::Waiters, stores)].into());
        assert!(page.contains("on 2026-11-26 and wrote"), "{page}");
        assert!(page.contains("| redis | 5.0 µs | – |") && page.contains("- redis: 100 take longer\n"), "{page}");
    }

    #[test]
    fn each_reason_is_of_what_was_measured_and_none_is_missing() {
        let record: Record = serde_json::from_str(include_str!("../../../../docs/figures/scale.json")).unwrap();
        let page: String = page(&record).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!page.contains("nobody knows"), "{page}");
        for (.., why) in REASONS {
            assert!(page.contains(why), "{why}");
        }
    }
}
