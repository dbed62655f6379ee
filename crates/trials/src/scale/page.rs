//! The page of what grows: docs/scale.md.

use std::fmt::Write;

use clap::ValueEnum;

use super::{Crowd, Record, Stairs, Step};
use crate::guarantees::wrap;

pub(crate) fn page(record: &Record) -> String {
    let mut page = include_str!("page.md").to_owned();
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
        let _ = writeln!(page, "\nOf the highest number that a store reached:\n");
        let _ = writeln!(
            page,
            "| store | number | segments | servers' time | client's time | servers' memory | client's memory |"
        );
        let _ = writeln!(page, "| --- |{}", " ---: |".repeat(6));
        for (store, stairs) in stores {
            if let Some(last) = stairs.steps.last() {
                let _ = writeln!(page, "| {store} | {} |", columns(last));
            }
        }
        page += &faster(crowd, stores.iter());
        page += &ends(stores.iter());
    }
    wrap(&page)
}

/// Why some times grow faster than the logarithm.
const REASONS: [(Crowd, &str, &str); 3] = [
    (
        Crowd::ClientsOfOne,
        "sqlite",
        "each waiting client reads the file once a second, in case nobody wakes it, and a thousand share two cores",
    ),
    (Crowd::ClientsApart, "mysql", "each client has connections of its own, and the server has a thread for each"),
    (Crowd::Waiters, "sqlite", "each waiter reads the file once a second, in case nobody wakes it"),
];

/// Which stores' times grow faster than the logarithm, and why.
fn faster<'a>(crowd: Crowd, stores: impl Iterator<Item = (&'a String, &'a Stairs)>) -> String {
    let grew = stores.filter(|(_, stairs)| grown(&stairs.steps).is_some_and(|(grown, allowed)| grown > allowed));
    let lines: String = grew
        .map(|(store, _)| {
            let known = REASONS.iter().find(|(of, its, _)| *of == crowd && its == store);
            format!("- {store}: {}.\n", known.map_or("nobody knows why", |(.., reason)| reason))
        })
        .collect();
    if lines.is_empty() { lines } else { format!("\nThese times grow faster than the logarithm:\n\n{lines}") }
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
    if ends.is_empty() { ends } else { format!("\nNo higher:\n\n{ends}") }
}

/// How the time grew from the first number above one to the last, and what the logarithm would allow.
fn growth(steps: &[Step]) -> String {
    grown(steps).map_or_else(String::new, |(grown, allowed)| format!("{grown:.2} of {allowed:.2}"))
}

fn grown(steps: &[Step]) -> Option<(f64, f64)> {
    let (first, last) = steps.iter().find(|step| step.number > 1).zip(steps.last())?;
    let allowed = (last.number as f64).ln() / (first.number as f64).ln();
    (first.number != last.number).then_some((last.time / first.time, allowed))
}

/// What is told while it is measured.
pub(crate) fn line(step: &Step) -> String {
    format!("{}: {} | {}", thousands(step.number), time(step.time), columns(step))
}

fn columns(step: &Step) -> String {
    format!(
        "{} | {:.1} | {} | {} | {} | {}",
        thousands(step.number),
        step.segments,
        time(step.server_cpu),
        time(step.client_cpu),
        bytes(step.server_bytes),
        bytes(step.client_bytes)
    )
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
    if bytes < 10_000.0 { format!("{bytes:.0} B") } else { format!("{:.0} kB", bytes / 1e3) }
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
                "From the question for the release to the grant of who is next. Whoever was served joins the line again, which is \
                 part of the rest. Memory is that of one waiter.",
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
        assert_eq!([thousands(7), thousands(1_000_000)], ["7", "1,000,000"]);
        let stairs = Stairs { steps: vec![step(10, 5.0)], ended: Some("100 take longer".to_owned()) };
        let stores = [("redis".to_owned(), stairs)].into();
        let page = page(&[(Crowd::Waiters, stores)].into());
        assert!(page.contains("| redis | 5.0 µs | – |") && page.contains("- redis: 100 take longer\n"), "{page}");
    }
}
