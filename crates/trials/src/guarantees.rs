//! `cargo xtask guarantees`: makes `docs/guarantees.md` of `docs/guarantees.in.md`, whose links name tests and cases,
//! and of what tortures came to. A link to what does not exist, or to a case that the backend does not pass, is an
//! error.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::Args;
use textwrap::WordSplitter::NoHyphenation;

use crate::record::{self, Record, root};

const SOURCE: &str = "docs/guarantees.in.md";
const PAGE: &str = "docs/guarantees.md";

/// The widest line of a page.
const WIDTH: usize = 120;

/// Each backend that passes the suite: where that is run, and where it declares the cases that it does not pass.
const SUITES: [(&str, &str, &str); 14] = [
    ("sqlite", "crates/lock-sql/tests/conformance.rs", "crates/lock-sql/tests/conformance.rs"),
    ("redis", "crates/lock-redis/tests/conformance.rs", "crates/lock-redis/tests/conformance.rs"),
    (
        "redis-cluster",
        "crates/lock-redis/tests/conformance_cluster.rs",
        "crates/lock-redis/tests/conformance_cluster.rs",
    ),
    (
        "memcached",
        "crates/lock-memcached/tests/conformance_memcached.rs",
        "crates/lock-memcached/tests/conformance_memcached.rs",
    ),
    ("zookeeper", "crates/lock-zookeeper/tests/ensemble.rs", "crates/lock-zookeeper/tests/harness/mod.rs"),
    ("etcd", "crates/lock-etcd/tests/conformance_three.rs", "crates/lock-etcd/tests/common/mod.rs"),
    ("postgres", "crates/lock-sql/tests/conformance_postgres.rs", "crates/lock-sql/tests/conformance_postgres.rs"),
    (
        "postgres-session",
        "crates/lock-sql/tests/conformance_postgres_session.rs",
        "crates/lock-sql/tests/conformance_postgres_session.rs",
    ),
    ("mysql", "crates/lock-sql/tests/conformance_mysql.rs", "crates/lock-sql/tests/conformance_mysql.rs"),
    ("mysql-session", "crates/lock-sql/tests/conformance_mysql_session.rs", "crates/lock-sql/tests/harness/mysql.rs"),
    (
        "postgres-shedlock",
        "crates/lock-sql/tests/conformance_postgres_shedlock.rs",
        "crates/lock-sql/tests/harness/postgres.rs",
    ),
    (
        "quorum-redis",
        "crates/lock-quorum/tests/conformance_quorum_redis.rs",
        "crates/lock-quorum/tests/conformance_quorum_redis.rs",
    ),
    ("quorum-sqlite", "crates/lock-quorum/tests/conformance_quorum_sqlite.rs", "crates/lock-sql/tests/conformance.rs"),
    ("mysql-shedlock", "crates/lock-sql/tests/conformance_mysql_shedlock.rs", "crates/lock-sql/tests/harness/mysql.rs"),
];

/// What to do with the page.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only look whether it is as it would be made now.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    if options.check { check() } else { write() }
}

/// Makes the page anew.
pub(crate) fn write() -> Result<(), String> {
    std::fs::write(root().join(PAGE), page()?).map_err(|error| format!("{PAGE}: {error}"))
}

fn check() -> Result<(), String> {
    if read(PAGE)? == page()? {
        Ok(())
    } else {
        Err(format!("{PAGE} is stale: `cargo xtask guarantees` makes it anew"))
    }
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))
}

fn page() -> Result<String, String> {
    let filled = fill(&links(&read(SOURCE)?)?, &record::all()?)?;
    let head = "<!-- Made by `cargo xtask guarantees` from guarantees.in.md and torture.json. -->";
    Ok(format!("{head}\n\n{}", wrap(&filled)))
}

/// Turns each link to a test or a case into one to its file.
fn links(source: &str) -> Result<String, String> {
    let mut parts = source.split("](");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_once(')').ok_or("a link that does not end")?;
        let target = match target.split_once(':') {
            Some(("case", case)) => case_link(case)?,
            Some(("test", test)) => test_link(test)?,
            _ => target.to_owned(),
        };
        write!(page, "]({target}){rest}").map_err(|error| error.to_string())?;
    }
    Ok(page)
}

/// `sqlite/fifo`: the case of the suite, which this backend passes.
fn case_link(target: &str) -> Result<String, String> {
    let (backend, case) = target.split_once('/').ok_or_else(|| format!("{target} names no case"))?;
    let suite = SUITES.iter().find(|(known, ..)| *known == backend);
    let (_, suite, declarations) = suite.ok_or_else(|| format!("{backend} is no backend with a suite"))?;
    if !conformance_tests::cases().any(|known| known == case) {
        return Err(format!("the suite has no case {case}"));
    }
    if read(declarations)?.contains(&format!("\"{case}\",")) {
        return Err(format!("{backend} does not pass {case}, says {declarations}"));
    }
    read(suite)?;
    Ok(format!("../{suite} \"{case}\""))
}

/// `crates/…/faults.rs#some_test`: a test that is there.
fn test_link(target: &str) -> Result<String, String> {
    let (file, test) = target.split_once('#').ok_or_else(|| format!("{target} names no test"))?;
    if !has_test(&read(file)?, test) {
        return Err(format!("{file} has no {test}"));
    }
    Ok(format!("../{file} \"{test}\""))
}

/// Is there a function of this name in the text of a file?
pub(crate) fn has_test(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}("))
}

/// Puts what was measured into the place of `{…}`.
fn fill(text: &str, records: &BTreeMap<String, Record>) -> Result<String, String> {
    let mut parts = text.split('{');
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (what, rest) = part.split_once('}').ok_or("a { without its }")?;
        match what.split_once(':') {
            None if what == "offers" => page += &offers(records),
            None if what == "tortures" => page += &tortures(records),
            Some((what, backend)) => page += &measured(what, records.get(backend))?,
            None => return Err(format!("{{{what}}} is nothing that is known")),
        }
        page += rest;
    }
    Ok(page)
}

fn measured(what: &str, record: Option<&Record>) -> Result<String, String> {
    let Some(record) = record else { return Ok("not measured yet".to_owned()) };
    match what {
        "notice" => Ok(format!("measured: {} s", record.worst_notice)),
        "freed" => Ok(format!("measured: {} s with a lease of {} s", record.worst_freed, record.lease)),
        _ => Err(format!("{what} is nothing that is measured")),
    }
}

fn offers(records: &BTreeMap<String, Record>) -> String {
    let yes = |offered| if offered { "yes" } else { "no" };
    table(
        &["", "reaches", "`fair`", "`prompt_loss`", "shortest lease"],
        // Each backend once.
        records.iter().filter(|(backend, its)| *backend != "redis-forgetful" && its.others.is_empty()).map(
            |(backend, record)| {
                let Record { reaches, fair, prompt_loss, shortest_lease, .. } = record;
                vec![
                    backend.clone(),
                    reaches.clone(),
                    yes(*fair).into(),
                    yes(*prompt_loss).into(),
                    format!("{shortest_lease} s"),
                ]
            },
        ),
    )
}

fn tortures(records: &BTreeMap<String, Record>) -> String {
    let found = table(
        &["", "minutes, seed", "lease", "grants", "losses", "told late", "recovered", "freed", "rules broken"],
        records.iter().map(|(backend, record)| {
            vec![
                backend.clone(),
                format!("{}, {}", record.minutes, record.seed),
                format!("{} s", record.lease),
                record.grants.to_string(),
                record.losses.to_string(),
                format!("{} s", record.worst_notice),
                format!("{} s", record.worst_recovery),
                format!("{} s, of {}", record.worst_freed, record.crashes),
                counted(&record.broken),
            ]
        }),
    );
    let blows = records.iter().map(|(backend, record)| {
        let Record { forgotten, worst_forgotten, worst_recovery_after, faults, others, .. } = record;
        let beside = if others.is_empty() { String::new() } else { format!("grants of others: {}. ", counted(others)) };
        let forgot = match forgotten {
            0 => String::new(),
            times => {
                format!(" The store forgot everything {times} times; holders learned it within {worst_forgotten} s.")
            }
        };
        let faults = counted(faults);
        format!("- {backend}: {beside}{faults}. The slowest recovery was after {worst_recovery_after}.{forgot}\n")
    });
    format!("{found}\n\nThe blows were:\n\n{}", blows.collect::<String>().trim_end())
}

fn counted(counts: &BTreeMap<String, usize>) -> String {
    let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rows: Vec<_> = rows.map(|row| line(&row)).collect();
    if rows.is_empty() {
        return "Nothing was recorded yet.".to_owned();
    }
    let head: Vec<_> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rule = vec!["---".to_owned(); head.len()];
    [line(&head), line(&rule), rows.concat()].concat().trim_end().to_owned()
}

/// Wraps paragraphs and lists; tables and headings stay as they are.
pub(crate) fn wrap(text: &str) -> String {
    let (mut page, mut block) = (String::new(), String::new());
    for line in text.lines().chain([""]) {
        let stays = line.is_empty() || line.starts_with(['|', '#']);
        if stays || line.starts_with("- ") {
            page += &wrapped(&block);
            block.clear();
        }
        if stays {
            page += line;
            page.push('\n');
        } else {
            block += line;
            block.push(' ');
        }
    }
    page.trim_end().to_owned() + "\n"
}

/// One paragraph, or one item of a list.
fn wrapped(block: &str) -> String {
    let indent = if block.starts_with("- ") { "  " } else { "" };
    let words: Vec<_> = block.split_whitespace().collect();
    let options = textwrap::Options::new(WIDTH).subsequent_indent(indent).word_splitter(NoHyphenation);
    let lines = textwrap::fill(&words.join(" "), options);
    if lines.is_empty() { lines } else { lines + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_as_it_would_be_made_now() {
        check().unwrap();
    }

    #[test]
    fn no_rule_was_broken() {
        for (backend, record) in record::all().unwrap() {
            assert!(record.broken.is_empty(), "{backend}: {:?}", record.broken);
        }
    }

    #[test]
    fn long_lines_are_wrapped_and_tables_are_not() {
        let words = "word ".repeat(30);
        let text = format!("# Title\n\n- {words}\n- b\n  c\n\n{words}\nend\n\n| {words}|\n");
        let page = wrap(&text);
        let wide: Vec<_> = page.lines().filter(|line| line.chars().count() > WIDTH).collect();
        assert_eq!(wide, [format!("| {words}|")]);
        assert!(page.contains("\n  word") && page.contains("\n- b c\n\n") && page.contains("word end\n"), "{page}");
        assert_eq!(wrap(&page), page);
    }

    #[test]
    fn what_is_not_there_is_not_linked() {
        for (link, says) in [
            ("case:redis/no_such_case", "no case"),
            ("case:nobody/fifo", "no backend"),
            // It has no server.
            ("case:sqlite/restarted_while_held", "does not pass"),
            ("test:crates/lock-sql/tests/fork.rs#no_such_test", "has no"),
            ("test:crates/no_such_file.rs#main", "no_such_file"),
        ] {
            let error = links(&format!("[yes]({link})")).unwrap_err();
            assert!(error.contains(says), "{link}: {error}");
        }
        assert_eq!(
            links("[yes](case:redis/fifo)").unwrap(),
            "[yes](../crates/lock-redis/tests/conformance.rs \"fifo\")"
        );
        assert_eq!(links("[cases](cases.md)").unwrap(), "[cases](cases.md)");
        assert!(fill("{offer}", &BTreeMap::new()).is_err());
        assert!(fill("{notice:redis}", &BTreeMap::new()).is_ok_and(|page| page.contains("not measured")));
        assert!(fill("{late:redis}", &record::all().unwrap()).is_err());
    }
}
