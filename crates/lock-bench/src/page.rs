//! `docs/performance.md`: what was found, and on what.

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::SystemTime;

use textwrap::Options;
use textwrap::WordSplitter::NoHyphenation;

use crate::Figure;
use crate::reasons::why;
use crate::record::Found;

/// Two less than the other pages have, as an editor may count bytes.
const WIDTH: usize = 118;

const HEAD: &str = "# Performance

`cargo xtask bench` writes this page. With a word, it measures only what has that word in its name, and leaves the rest
as it was.
";

const BARS: &str = "
Most figures are ratios against a bare operation or another lock. Both are measured in turns within the same run, so a
machine that is slow for a while is slow for both. The other figures are counts and times. *Bare* is the least that the
store could do for a lock: the same client crate writes and deletes a row, a key or a node with the same durability.

On SQLite, both have one core. Otherwise, most of both times would be spent on waking a thread on another core. The
table shows the median over the rounds, the lowest and the highest round, and the bar, if there is one.

A *durable write* is on the disk when it is answered. This disk is fast. On a slower one, what decides is how many
durable writes an acquisition takes, and how many of them the next holder waits for.
";

const ROWS: &str = "
## Every lock beside the others

Medians, measured in turns.

- *Alone*: lock and unlock, one process.
- *Hand-offs*: 8 processes want one lock and do nothing with it. The time runs from a release to the return of the next
  acquisition that was waiting already.
- *Turns*: 8 processes that hold the lock for 2 ms and do without it for 2 ms. Fairness is Jain's index, at best 1.

The servers save what they grant before they answer. `flock`, SQLite and PostgreSQL's advisory locks do not.

| store | lock | alone | hand-offs/s | p50 | p99 | turns/s | fairness | longest wait |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
";

const ABSENT: &str = "
Of `distributed-lock`, only the part for Redis is here. Its lock does not wait, so it is asked again and again. The
parts for PostgreSQL and MySQL need `sqlx` 0.8. A workspace can link only one SQLite, so they would take ours back from
`libsqlite3-sys` 0.37 to 0.30. The part for files does not exclude.
";

/// Servers and programs, and the Debian packages that they come in.
const SERVERS: [(&str, &str); 6] = [
    ("Redis", "redis-server"),
    ("ZooKeeper", "libzookeeper-java"),
    ("etcd", "etcd-server"),
    ("PostgreSQL", "postgresql-15"),
    ("MariaDB", "mariadb-server-core"),
    ("Curator", "libcurator-recipes-java"),
];

const CRATES: [&str; 7] =
    ["redis", "zookeeper-client", "etcd-client", "sqlx", "libsqlite3-sys", "rslock", "distributed-lock-redis"];

/// How stores are called where figures begin with something else.
const STORES: [(&str, &str); 10] = [
    ("disk", "The disk"),
    ("memory", "In memory"),
    ("http", "HTTP"),
    ("sqlite", "SQLite"),
    ("redis", "Redis"),
    ("quorum", "Quorum"),
    ("zookeeper", "ZooKeeper"),
    ("etcd", "etcd"),
    ("postgres", "PostgreSQL"),
    ("mariadb", "MariaDB"),
];

/// The whole page.
pub(crate) fn page(found: &Found) -> String {
    let mut page = format!("{HEAD}\n{}\n", machine());
    let missed: Vec<_> = found.figures.iter().filter(|figure| !figure.is_met()).collect();
    let count = found.figures.iter().filter(|figure| figure.bar.is_some()).count();
    let met = count - missed.len();
    let _ = writeln!(page, "\n## The bars: {met} of {count} are met\n{BARS}");
    for figure in missed {
        let (what, found, bar) = (&figure.what, figure.value, bar(figure));
        let missed = format!("- Missed: {what}, {found:.3} where {bar} is the bar. {}", why(figure));
        let options = Options::new(WIDTH).subsequent_indent("  ").word_splitter(NoHyphenation);
        let _ = writeln!(page, "{}", textwrap::fill(&missed, options));
    }
    let mut stores: Vec<&str> = found.figures.iter().map(|figure| named(figure).0).collect();
    let mut known = HashSet::new();
    stores.retain(|store| known.insert(*store));
    for store in stores {
        let title = STORES.iter().find(|(name, _)| *name == store).map_or(store, |(_, title)| title);
        let its = found.figures.iter().filter(|figure| named(figure).0 == store);
        let rows: String = its.map(row).collect();
        let _ = write!(
            page,
            "\n### {title}\n\n| | median | lowest–highest | bar | |\n| --- | ---: | ---: | ---: | --- |\n{rows}"
        );
    }
    if !found.rows.is_empty() {
        page.push_str(ROWS);
        for row in &found.rows {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {:.0} | {} | {} | {:.0} | {:.3} | {} |",
                row.store,
                row.lock,
                time(row.alone_us),
                row.hand_offs,
                time(row.p50_us),
                time(row.p99_us),
                row.turns,
                row.fairness,
                time(row.longest_ms * 1e3),
            );
        }
        page.push_str(ABSENT);
    }
    page
}

/// The store that a figure is of, and what it says.
fn named(figure: &Figure) -> (&str, &str) {
    figure.what.split_once(": ").unwrap_or(("", &figure.what))
}

fn row(figure: &Figure) -> String {
    let what = named(figure).1;
    let verdict = if figure.is_met() { "met" } else { "**missed**" };
    let [value, low, high] = [figure.value, figure.spread.0, figure.spread.1].map(digits);
    let judged = if figure.bar.is_some() { format!("{} | {verdict} |", bar(figure)) } else { "| |".to_owned() };
    format!("| {what} | {value} | {low}–{high} | {judged}\n")
}

fn bar(figure: &Figure) -> String {
    let sign = if figure.at_most { "≤" } else { "≥" };
    figure.bar.map_or(String::new(), |bar| format!("{sign} {bar}"))
}

/// Three digits are more than the figures are good for.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn time(micros: f64) -> String {
    if micros < 1e3 { format!("{micros:.0} µs") } else { format!("{} ms", digits(micros / 1e3)) }
}

/// On what, and when.
fn machine() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = read("/proc/meminfo");
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let memory = kib.map_or(String::new(), |kib: u64| format!(", {} GiB", (kib as f64 / 1_048_576.0).round()));
    let kernel = read("/proc/sys/kernel/osrelease");
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let servers: Vec<_> = SERVERS.iter().filter_map(|(name, of)| Some(format!("{name} {}", packaged(of)?))).collect();
    let crates: Vec<_> = CRATES.iter().filter_map(|name| Some(format!("`{name}` {}", locked(name)?))).collect();
    // All of them in one line would be too wide.
    let crates: Vec<_> = crates.chunks(4).map(|some| some.join(", ")).collect();
    format!(
        "Measured on {}.\n\n- Machine: {cores} cores of {model}{memory}, Linux {}. Clients and servers share it, over \
         loopback.\n- Servers: {}.\n- Crates: {}.",
        &date[..10],
        kernel.trim(),
        servers.join(", "),
        crates.join(",\n  ")
    )
}

/// The version of a package, as upstream calls it.
fn packaged(name: &str) -> Option<String> {
    let asked = Command::new("dpkg-query").args(["-W", "-f", "${Version}", name]).output().ok()?;
    let version = String::from_utf8(asked.stdout).ok().filter(|version| !version.is_empty())?;
    let upstream = version.split_once(':').map_or(version.as_str(), |(_, rest)| rest);
    Some(upstream.split(['-', '+']).next()?.to_owned())
}

/// The version of a crate that this was built with.
fn locked(name: &str) -> Option<&'static str> {
    let lock = include_str!("../../../Cargo.lock");
    lock.split_once(&format!("name = \"{name}\"\nversion = \""))?.1.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beside::Row;

    #[test]
    fn the_page_has_each_figure_and_each_lock() {
        let store =
            |(store, _): (&str, &str)| Figure::at_least(format!("{store}: rate / bare"), vec![1.0, 3.0, 2.0], 1.5);
        let mut figures: Vec<_> = STORES.into_iter().map(store).collect();
        figures.push(Figure::at_most("redis: what / bare", vec![0.5], 0.25));
        figures.push(Figure::reported("redis: nobody's / bare", vec![0.5]));
        let (store, lock) = ("Redis".to_owned(), "ours".to_owned());
        let (p50_us, p99_us, longest_ms) = (61.4, 12_340.0, 2.0);
        let row =
            Row { store, lock, alone_us: 9.0, hand_offs: 4.0, p50_us, p99_us, turns: 3.0, fairness: 0.5, longest_ms };
        let page = page(&Found { figures, rows: vec![row] });
        for (_, title) in STORES {
            assert!(page.contains(&format!("### {title}\n")), "{page}");
        }
        for part in [
            &format!("{} of {} are met", STORES.len(), STORES.len() + 1),
            "- Missed: redis: what / bare, 0.500 where ≤ 0.25 is the bar.",
            "| rate / bare | 2.00 | 1.00–3.00 | ≥ 1.5 | met |",
            "| what / bare | 0.50 | 0.50–0.50 | ≤ 0.25 | **missed** |",
            "| nobody's / bare | 0.50 | 0.50–0.50 | | |",
            "| Redis | ours | 9 µs | 4 | 61 µs | 12.3 ms | 3 | 0.500 | 2.00 ms |",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }

    #[test]
    fn crates_have_versions() {
        assert!(CRATES.iter().all(|name| locked(name).is_some()));
    }
}
