//! `docs/cases.md` says what there is: each case once, and tests that exist.

use std::collections::HashSet;
use std::path::Path;

use conformance_tests::cases;

use crate::guarantees::has_test;
use crate::record::root;

/// What holds a case, as its row says.
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

#[test]
fn every_case_has_a_test_that_exists_or_a_reason() {
    let table = std::fs::read_to_string(root().join("docs/cases.md")).unwrap();
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let number: usize = cells.next()?.parse().ok()?;
        Some((number, cells.nth(1)?.trim_end_matches(" |")))
    });
    let (numbers, held_by): (Vec<_>, Vec<_>) = rows.unzip();
    assert!(numbers.len() > 100);
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
    let objections: Vec<_> = numbers
        .iter()
        .zip(held_by)
        .flat_map(|(number, held_by)| {
            objections(root(), held_by).into_iter().map(move |what| format!("{number}: {what}"))
        })
        .collect();
    assert!(objections.is_empty(), "docs/cases.md, case {}", objections.join("\n  case "));
}

#[test]
fn what_caught_seeded_faults_exists() {
    let text = std::fs::read_to_string(root().join("docs/cases.md")).unwrap();
    let (_, seeded) = text.split_once("## Seeded faults").unwrap();
    let rows = seeded.lines().filter(|line| line.starts_with("| ")).skip(2);
    let caught_by: Vec<_> = rows.map(|row| row.split('|').nth(3).unwrap_or_default()).collect();
    assert!(!caught_by.is_empty());
    let objections: Vec<_> = caught_by.iter().flat_map(|cases| objections(root(), cases)).collect();
    assert!(objections.is_empty(), "docs/cases.md, seeded faults: {objections:?}");
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
