//! The report as a table on the terminal.

use comfy_table::{Table, presets};

use super::figures::{ROWS, Unit};
use super::report::{Backend, Report};
use super::statistics::Figure;
use crate::output::clean;

/// The whole report.
pub(super) fn table(report: &Report) -> String {
    let mut text = format!("{}\n\n", conditions(report));
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let names = report.backends.iter().map(|backend| clean(&backend.name));
    table.set_header([String::new()].into_iter().chain(names));
    for (heading, rows) in ROWS {
        table.add_row([heading.to_uppercase()]);
        for &(measure, title, unit) in rows {
            let cells = report.backends.iter().map(|backend| cell(backend.figures.get(&measure), unit));
            table.add_row([format!("  {title}")].into_iter().chain(cells));
        }
    }
    table.add_row(["PROMISES".to_owned()]);
    for (title, promise) in PROMISES {
        table.add_row([format!("  {title}")].into_iter().chain(report.backends.iter().map(promise)));
    }
    text.push_str(&format!("{table}\n\nMedian over the rounds (lowest–highest). {MESSAGES}\n"));
    for remark in remarks(report) {
        text.push_str(&format!("{}\n", clean(&remark)));
    }
    text
}

/// What they are, and why some backends have no such figure.
pub(super) const MESSAGES: &str = "A message is what arrives at the server at once: a request may be several, and what is sent \
    now and then to show that a client lives is among them. They are counted where the URL names one server and its port, without TLS.";

/// A promise, and how far a backend makes it.
pub(super) type Promise = (&'static str, fn(&Backend) -> String);

pub(super) const PROMISES: [Promise; 8] = [
    ("excludes the processes of", |backend| backend.reaches.clone()),
    ("first come, first served, if asked for", |backend| yes_or_no(backend.fair)),
    ("read-write locks", |backend| yes_or_no(backend.read_write_locks)),
    ("semaphores", |backend| yes_or_no(backend.semaphores)),
    ("tells of an eviction at once", |backend| yes_or_no(backend.prompt_loss)),
    ("shortest lease", |backend| Unit::Time.show(backend.min_lease_ms as f64 * 1e3)),
    ("rising fencing tokens", |_| yes_or_no(true)),
    ("findings of doctor", |backend| backend.findings.as_ref().map_or("-".to_owned(), |found| found.len().to_string())),
];

fn yes_or_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn cell(figure: Option<&Figure>, unit: Unit) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if figure.rounds == 1 => unit.show(figure.median),
        Some(figure) => format!("{} ({})", unit.show(figure.median), spread(figure, unit)),
    }
}

/// From the lowest round to the highest, with the unit once where it is the same.
pub(super) fn spread(figure: &Figure, unit: Unit) -> String {
    let (low, high) = (unit.show(figure.low), unit.show(figure.high));
    let suffix = |text: &str| text.find([' ', '/']).map_or(String::new(), |at| text[at..].to_owned());
    if suffix(&low) == suffix(&high) {
        format!("{}–{high}", low.strip_suffix(&suffix(&low)).unwrap_or(&low))
    } else {
        format!("{low}–{high}")
    }
}

/// On what, when, and for how long.
pub(super) fn conditions(report: &Report) -> String {
    let machine = &report.machine;
    let incomplete = if report.complete { "" } else { " It was interrupted: some figures are of fewer rounds." };
    format!(
        "oarlock {} on {} cores of {}, {}, {}. {} rounds, {:.0} s for each store.{incomplete}",
        report.version, machine.cores, machine.processor, machine.system, report.started, report.rounds, report.seconds
    )
}

/// What must not be overlooked.
pub(super) fn remarks(report: &Report) -> Vec<String> {
    let mut remarks = Vec::new();
    for backend in &report.backends {
        let name = &backend.name;
        if !backend.is_sound() {
            let times = backend.overlaps;
            remarks.push(format!("{name}: MORE HELD A LOCK AT ONCE THAN MAY, {times} times. Do not use this store."));
        }
        for finding in backend.findings.iter().flatten() {
            remarks.push(format!("{name}: {}: voids {}; {}", finding.setting, finding.voids, finding.advice));
        }
        remarks.extend(backend.failures.iter().map(|why| format!("{name}: not measured: {why}")));
    }
    remarks
}
