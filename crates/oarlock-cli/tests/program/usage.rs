//! The command line: what it takes, what it refuses, and how it is described.

use std::net::TcpListener;
use std::process::Output;
use std::time::{Duration, Instant};

use crate::common::{Place, code};

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn completions_and_manual_pages_are_generated() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let completions = text(&place.output(&["completions", shell]));
        assert!(completions.contains("evict") && !completions.contains("__guard"), "{shell}");
        assert!(!completions.contains("__worker"), "{shell}");
    }
    for (page, named) in [
        (&[][..], ".TH oarlock 1"),
        (&["run"], "once"),
        (&["elect"], "campaigns again"),
        (&["leader"], "blind"),
        (&["inspect"], "exit"),
        (&["fence"], "later writer"),
    ] {
        let page = text(&place.output(&[&["man"], page].concat()));
        assert!(page.contains(named) && !page.contains("__guard"), "{page}");
        for section in ["EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"] {
            let head = |line: &&str| line.strip_prefix(".SH ").is_some_and(|title| title.trim_matches('"') == section);
            assert_eq!(page.lines().filter(head).count(), 1, "{section} in {page}");
        }
        assert!(page.contains("OARLOCK_URL") && page.contains("config.toml") && !page.contains("EXTRA"), "{page}");
    }
    assert_eq!(code(place.output(&["man", "__guard"]).status), 64);
    assert!(!text(&place.output(&["--help"])).contains("__"));
}

#[test]
fn wrong_usage_names_the_remedy() {
    let place = Place::new();
    for (args, says) in [
        (&["run", "x", "true"][..], "put -- before the command"),
        (&["run", "x", "--wait", "-1s", "--", "true"], "cannot be negative"),
        (&["run", "x", "--wait", "5", "--", "true"], "needs a unit"),
        (&["run", "x", "--lease", "5", "--", "true"], "needs a unit"),
        (&["run", "x", "--grace", "5", "--", "true"], "needs a unit"),
        (&["run", "x", "--once", "--", "true"], "--slot SLOT"),
        (&["run", "x", "--once", "--", "true"], "--at-least DURATION"),
        (&["run", "x", "--once", "--at-least", "0", "--", "true"], "cannot be zero"),
        (&["run", "x", "--once", "--slot", "", "--", "true"], "--slot"),
        (&["run", "x", "--once", "--slot", "1", "--wait", "5s", "--", "true"], "cannot be used with"),
        (&["run", "x", "--once", "--slot", "1", "--try", "--", "true"], "cannot be used with"),
        (&["run", "x", "--once", "--slot", "1", "-E", "0", "--", "true"], "cannot be used with"),
        (&["run", "x", "--once", "--slot", "1", "-E", "0", "--", "true"], "use --skipped CODE instead"),
        (&["run", "x", "--once", "--slot", "1", "--value", "v", "--", "true"], "cannot be used with"),
        (&["run", "x", "--slot", "1", "--", "true"], "--once"),
        (&["run", "x", "--value", "", "--", "true"], "a value cannot be empty"),
        (&["elect", "x", "--value", "v", "true"], "put -- before the command, as in: oarlock elect"),
        (&["elect", "x", "--", "true"], "--value"),
        (&["elect", "x", "--value", "v", "--wait", "5s", "--", "true"], "run NAME --wait DURATION --value TEXT"),
        (&["elect", "x", "--value", "v", "--try", "--", "true"], "run NAME --wait DURATION --value TEXT"),
        (&["elect", "", "--value", "v", "--", "true"], "empty"),
    ] {
        let output = place.output(args);
        assert_eq!(code(output.status), 64, "{args:?}");
        assert!(told(&output).contains(says), "{args:?}: {output:?}");
    }
    assert!(!told(&place.output(&["list", "--jsn"])).contains("put --"));
}

#[test]
fn a_lease_that_cannot_be_has_one_exit_code() {
    let place = Place::new();
    let url = format!("{}?lease=1000000h", place.url());
    for output in [
        place.output(&["run", "x", "--lease", "1000000h", "--", "true"]),
        place.bare(&["--url", &url, "run", "x", "--", "true"]).output().unwrap(),
    ] {
        assert_eq!(code(output.status), 78, "{output:?}");
        assert!(told(&output).contains("lease"), "{output:?}");
    }
    assert_eq!(code(place.output(&["run", "", "--", "true"]).status), 64, "a name is no configuration");
}

#[test]
fn a_wait_bounds_connecting_too() {
    let place = Place::new();
    // It takes connections and never answers, as a server that is stopped.
    let stopped = TcpListener::bind("127.0.0.1:0").unwrap();
    let stopped = stopped.local_addr().unwrap();
    for url in ["zookeeper://127.0.0.1:1".to_owned(), format!("redis://{stopped}?timeout=30s")] {
        // The last is what the configuration says.
        for wait in [&["--wait", "1s"][..], &["--wait", "0"], &["--try"], &[]] {
            let begun = Instant::now();
            let run = [&["--url", &url, "run", "x", "-E", "9"], wait, &["--", "true"]].concat();
            let output = place.bare(&run).env("OARLOCK_WAIT", "1s").output().unwrap();
            assert_eq!(code(output.status), 69, "{url} {wait:?}: {output:?}");
            assert!(told(&output).contains("was not reached within 1s"), "{url} {wait:?}: {output:?}");
            assert!(begun.elapsed() < Duration::from_secs(4), "{url} {wait:?}: {:?}", begun.elapsed());
        }
    }
}
