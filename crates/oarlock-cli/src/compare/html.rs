//! The report as one page that needs nothing else: no script, no network. It is right in light and dark, on a desk and
//! on a phone, for which each plot is there in a second size.

use std::fmt::Write;

use super::figures::{Measure, ROWS, Step, Unit};
use super::report::{Backend, Report};
use super::statistics::Figure;
use super::svg::{Dots, Spread, dots, escape, spreads};
use super::table::{MESSAGES, PROMISES, conditions, remarks, spread};

const WIDE: f64 = 856.0;
const NARROW: f64 = 358.0;

/// Times whose spread is shown: of which step, under what name and title, with what median and tail.
const SPREADS: [(Step, &str, &str, &str, Measure, Measure); 3] = [
    (
        Step::Alone,
        "alone",
        "Lock and unlock, nobody else there",
        "time for both",
        Measure::AloneP50Us,
        Measure::AloneP99Us,
    ),
    (
        Step::Eight,
        "eight",
        "Hand-off between 8 processes",
        "from a release to the next holder",
        Measure::EightP50Us,
        Measure::EightP99Us,
    ),
    (
        Step::Wake,
        "wake",
        "Wake-up after a hold of 50 ms",
        "from a release to the next holder",
        Measure::WakeP50Us,
        Measure::WakeP99Us,
    ),
];

/// By who wants the lock.
const RATES: [(&str, Measure); 3] =
    [("2 processes", Measure::PairPerS), ("8 processes", Measure::EightPerS), ("64 tasks", Measure::TasksPerS)];

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>Locks compared</title>\n<style>\n{}</style>\n</head>\n\
         <body>\n<h1>Locks compared</h1>\n<p class=\"muted\">{}</p>\n",
        include_str!("page.css"),
        escape(&conditions(report))
    );
    let remarks = remarks(report);
    if !remarks.is_empty() {
        let items: String = remarks.iter().map(|remark| format!("<li>{}</li>", escape(remark))).collect();
        let _ = writeln!(page, "<div class=\"remarks\"><ul>{items}</ul></div>");
    }
    section(&mut page, "promises", "What each promises", "", &promises(report));
    for (step, name, title, axis, median, tail) in SPREADS {
        let rows: Vec<_> = report.backends.iter().filter_map(|backend| times(backend, step, median, tail)).collect();
        let plot = |width| spreads(&rows, width, axis);
        section(&mut page, name, title, "The line is the median, the dashed one p99.", &twice(plot));
    }
    let rows: Vec<_> = report.backends.iter().map(rates).collect();
    let plot = |width| dots(&rows, Unit::PerSecond, width, "hand-offs per second");
    let about = "From one holder to another that was waiting; the tasks are of one process. The line goes from the lowest round to the highest.";
    section(&mut page, "rates", "Hand-offs by who wants the lock", about, &twice(plot));
    let recovery = |one: &'_ Backend| one.figures.get(&Measure::RecoveryUs).copied();
    let lines = report.backends.iter().filter_map(|one| Some((one.name.as_str(), recovery(one)?))).collect();
    let rows = [Dots { name: "", lines }];
    let plot = |width| dots(&rows, Unit::Time, width, "from the kill to the next holder");
    let about = "The holder's process is killed just after the grant. Its lease is 2 seconds, or the shortest that the store gives if that is longer.";
    section(&mut page, "recovery", "Recovery from a crash", about, &twice(plot));
    let about = format!("Median over the rounds, and below it the lowest and the highest. {MESSAGES}");
    section(&mut page, "figures", "All figures", &about, &figures(report));
    page.push_str("</body>\n</html>\n");
    page
}

/// Each has a name, so that a link can lead there, and a picture show some of them.
fn section(page: &mut String, name: &str, title: &str, about: &str, content: &str) {
    let about = if about.is_empty() { String::new() } else { format!("<p class=\"muted\">{}</p>\n", escape(about)) };
    let _ = writeln!(page, "<section id=\"{name}\">\n<h2>{}</h2>\n{about}{content}\n</section>", escape(title));
}

/// A plot in both sizes, of which the page shows one.
fn twice(plot: impl Fn(f64) -> String) -> String {
    let sizes = [("wide", WIDE), ("narrow", NARROW)];
    sizes.map(|(class, width)| format!("<figure class=\"{class}\">{}</figure>", plot(width))).concat()
}

fn times<'a>(backend: &'a Backend, step: Step, median: Measure, tail: Measure) -> Option<Spread<'a>> {
    Some(Spread {
        name: &backend.name,
        bins: backend.distributions.get(&step)?,
        median: backend.figures.get(&median)?.median,
        tail: backend.figures.get(&tail)?.median,
    })
}

fn rates(backend: &Backend) -> Dots<'_> {
    let line = |(name, measure): (&'static str, Measure)| Some((name, *backend.figures.get(&measure)?));
    Dots { name: &backend.name, lines: RATES.into_iter().filter_map(line).collect() }
}

fn promises(report: &Report) -> String {
    let rows = PROMISES.map(|(title, promise)| row(title, report.backends.iter().map(|one| escape(&promise(one)))));
    table(report, &rows.concat())
}

fn figures(report: &Report) -> String {
    let mut rows = String::new();
    for (heading, figures) in ROWS {
        let span = report.backends.len() + 1;
        let _ = write!(rows, "<tr class=\"group\"><th colspan=\"{span}\">{}</th></tr>", escape(heading));
        for &(measure, title, unit) in figures {
            rows.push_str(&row(title, report.backends.iter().map(|one| cell(one.figures.get(&measure), unit))));
        }
    }
    table(report, &rows)
}

fn cell(figure: Option<&Figure>, unit: Unit) -> String {
    let Some(figure) = figure else { return "–".to_owned() };
    let value = escape(&unit.show(figure.median));
    if figure.rounds > 1 { format!("{value}<small>{}</small>", escape(&spread(figure, unit))) } else { value }
}

fn row(title: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!("<td>{cell}</td>")).collect();
    format!("<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(title))
}

fn table(report: &Report, rows: &str) -> String {
    let head = |one: &Backend| format!("<th scope=\"col\" title=\"{}\">{}</th>", escape(&one.url), escape(&one.name));
    let head: String = report.backends.iter().map(head).collect();
    format!("<div class=\"scroll\"><table><thead><tr><th></th>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"{
      "version": "0.1.0", "started": "2026-01-01T00:00:00Z", "prefix": "x", "seconds": 60.0, "rounds": 3, "complete": true,
      "machine": { "system": "Linux", "processor": "<b>", "cores": 2 },
      "backends": [
        { "name": "<i>", "url": "sqlite:\"x", "kind": "sqlite", "reaches": "one host", "fair": true, "prompt_loss": false,
          "read_write_locks": true, "semaphores": false,
          "min_lease_ms": 10, "findings": null, "overlaps": 2, "failures": ["100 idle waiters: why"],
          "figures": {
            "alone_p50_us": { "median": 50.0, "low": 40.0, "high": 60.0, "rounds": 3 },
            "alone_p99_us": { "median": 500.0, "low": 500.0, "high": 500.0, "rounds": 1 },
            "pair_per_s": { "median": 0.0, "low": 0.0, "high": 0.0, "rounds": 3 },
            "recovery_us": { "median": 1800000.0, "low": 1700000.0, "high": 1900000.0, "rounds": 3 } },
          "distributions": { "alone": [{ "from_us": 39.8, "count": 9 }, { "from_us": 501.2, "count": 1 }] } },
        { "name": "nothing", "url": "redis://h", "kind": "redis", "reaches": "every host", "fair": true, "prompt_loss": true,
          "read_write_locks": true, "semaphores": true,
          "min_lease_ms": 10, "findings": [{ "setting": "a", "voids": "b", "advice": "c" }], "overlaps": 0, "failures": [],
          "figures": {}, "distributions": {} } ] }"#;

    #[test]
    fn a_page_needs_nothing_and_nothing_breaks_it() {
        let page = page(&serde_json::from_str(SAMPLE).unwrap());
        for foreign in ["<script", "<link", "<img", "http", "url(", "@import", "<i>", "<b>", "\"x\"", "NaN", "inf"] {
            assert!(!page.contains(foreign), "{foreign} in {page}");
        }
        for part in
            ["50.0 µs", "40.0–60.0 µs", "1.80 s", "MORE HELD A LOCK AT ONCE THAN MAY", "not measured", "a: voids b; c"]
        {
            assert!(page.contains(part), "{part}");
        }
        // Each element ends where it must.
        let mut open = Vec::new();
        for tag in page.split('<').skip(2).filter_map(|rest| rest.split('>').next()) {
            if let Some(ended) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(ended));
            } else if !tag.ends_with('/') && !tag.starts_with("meta") {
                open.push(tag.split(' ').next().unwrap_or_default());
            }
        }
        assert_eq!(open, Vec::<&str>::new());
        assert_eq!(page.matches("<svg").count(), 2 * (SPREADS.len() + 2));
    }
}
