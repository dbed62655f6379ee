//! `docs/cases.md` says what there is: each case once, and tests that exist.

use std::collections::HashSet;
use std::path::Path;

use conformance_tests::cases;

use crate::guarantees::has_test;
use crate::record::root;

/// What is wrong with the tests that are said to cover a case. Parts are separated by semicolons.
fn objections(root: &Path, held_by: &str) -> Vec<String> {
    let mut objections = Vec::new();
    if held_by.starts_with("Not yet: ") {
        return objections;
    }
    if let Some(reason) = held_by.strip_prefix("Comes with `") {
        let folder = reason.split('`').next().unwrap_or_default();
        if root.join("crates").join(folder).exists() {
            objections.push(format!("{folder} is here: name its tests"));
        }
        return objections;
    }
    let suite: HashSet<_> = cases().collect();
    let mut named = 0;
    for part in held_by.split(';') {
        let mut file = None;
        for name in part.split('`').skip(1).step_by(2).filter(|name| !name.starts_with("cargo ")) {
            if name.ends_with(".rs") {
                match std::fs::read_to_string(root.join(name)) {
                    Ok(text) => file = Some((name, text)),
                    Err(error) => objections.push(format!("{name}: {error}")),
                }
                continue;
            }
            named += 1;
            let there = match &file {
                Some((_, text)) => has_test(text, name),
                None => suite.contains(name),
            };
            if !there {
                let place = file.as_ref().map_or("the suite", |(name, _)| *name);
                objections.push(format!("{place} has no {name}"));
            }
        }
    }
    if named == 0 {
        objections.push("nothing holds it".to_owned());
    }
    objections
}

/// The cases by their numbers, each with its tests; and the tests that caught seeded faults.
fn listed(page: &str) -> (Vec<(usize, String)>, Vec<String>) {
    let (cases, seeded) = page.split_once("## Seeded faults").unwrap();
    let mut found: Vec<(usize, String)> = Vec::new();
    for line in cases.lines() {
        let number = line.split_once(". ").and_then(|(number, _)| number.parse().ok());
        match (number, found.last_mut()) {
            (Some(number), _) => found.push((number, String::new())),
            // A file and its tests begin with a dash; what follows belongs to them, or else to the title.
            (None, Some((_, tests))) => match line.trim_start().strip_prefix("- ") {
                Some(part) => *tests += &format!(";{part}"),
                None if tests.is_empty() => {}
                None => *tests += line,
            },
            (None, None) => {}
        }
    }
    let faults = seeded.split("\n  - ").skip(1);
    let caught = faults.map(|fault| fault.split("\n- ").next().unwrap_or_default().to_owned());
    (found, caught.collect())
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/cases.md")).unwrap()
}

#[test]
fn every_case_has_a_test_that_exists_or_a_reason() {
    let (cases, _) = listed(&page());
    let (numbers, tests): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert!(numbers.len() > 100);
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
    let objections: Vec<_> = numbers
        .iter()
        .zip(tests)
        .flat_map(|(number, tests)| {
            objections(root(), tests.trim_start_matches(';')).into_iter().map(move |what| format!("{number}: {what}"))
        })
        .collect();
    assert!(objections.is_empty(), "docs/cases.md, case {}", objections.join("\n  case "));
}

#[test]
fn what_caught_seeded_faults_exists() {
    let (_, caught_by) = listed(&page());
    assert!(caught_by.len() > 20);
    let objections: Vec<_> = caught_by.iter().flat_map(|cases| objections(root(), cases)).collect();
    assert!(objections.is_empty(), "docs/cases.md, seeded faults: {objections:?}");
}

#[test]
fn a_case_is_a_number_and_a_list_of_tests() {
    let cases = "# Cases\n\nText.\n\n1. A title that\n   goes on.\n     - the suite: `a`, `b`,\n       `c`\n";
    let more = "     - `x.rs`: `d`\n2. B.\n## Seeded faults\n\n";
    let seeded = "- A fault.\n  - Redis: `e`. *Torture*:\n    B1.\n- Another.\n  - etcd: `f`.\n";
    let page = [cases, more, seeded].concat();
    let (cases, caught) = listed(&page);
    assert_eq!(cases, [(1, ";the suite: `a`, `b`,       `c`;`x.rs`: `d`".to_owned()), (2, String::new())]);
    assert_eq!(caught, ["Redis: `e`. *Torture*:\n    B1.", "etcd: `f`.\n"]);
}

#[test]
fn what_does_not_exist_is_objected_to() {
    for held_by in [
        "`no_such_case`",
        "`crates/no_such_file.rs` `some_test`",
        "`crates/lock-sql/tests/fork.rs` `no_such_test`",
        "`crates/lock-sql/tests/fork.rs`",
        "Comes with `lock-core`.",
        "",
    ] {
        assert!(!objections(root(), held_by).is_empty(), "{held_by}");
    }
    let good = "`fifo`; `crates/lock-sql/tests/fork.rs` `main`; `torture`";
    assert_eq!(objections(root(), good), Vec::<String>::new());
    assert_eq!(objections(root(), "Comes with `lock-nowhere`."), Vec::<String>::new());
}
