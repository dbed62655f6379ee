//! The dashboard and the page for operators name the metrics that there are.

use std::collections::BTreeSet;

use serde_json::Value;

const DASHBOARD: &str = include_str!("../../../../docs/grafana.json");
const OPERATING: &str = include_str!("../../../../docs/manual/operating.md");
/// Where they are recorded. That they are recorded by these names, `lock-core/tests/metrics.rs` shows.
const TELEMETRY: &str = include_str!("../../../lock-core/src/engine/telemetry.rs");

/// What Prometheus makes of a histogram.
const PARTS: [&str; 3] = ["_sum", "_count", "_bucket"];

/// All names of metrics in a text, histograms by their own.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = text.match_indices("oarlock_").map(|(at, _)| {
        let rest = &text[at..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        let part = PARTS.iter().find_map(|part| name.strip_suffix(part));
        part.unwrap_or(name)
    });
    names.collect()
}

/// The text of every query.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if ["expr", "query", "definition"].contains(&key.as_str()) => {
                        found.push(text.clone());
                    }
                    value => queries(value, found),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_metric_of_the_dashboard_exists_and_none_is_missing() {
    let recorded = metrics(TELEMETRY);
    assert!(recorded.contains("oarlock_lost_total") && recorded.len() == 9, "{recorded:?}");
    let mut found = Vec::new();
    queries(&serde_json::from_str(DASHBOARD).unwrap(), &mut found);
    assert_eq!(metrics(&found.join("\n")), recorded);
}

#[test]
fn the_page_for_operators_lists_them_all() {
    assert_eq!(metrics(OPERATING), metrics(TELEMETRY));
}
