//! `oarlock compare`, as far as it needs no server.

use crate::common::{Place, Running, children, code, wait_for};
use nix::sys::signal::Signal;

#[test]
fn the_table_names_each_store_and_figure() {
    let place = Place::new();
    let running = Running::start(&mut place.oarlock(&["compare", &place.url(), &place.url(), "--seconds", "600"]));
    wait_for("the first worker", || (!children(&running).is_empty()).then_some(()));
    running.signal(Signal::SIGTERM);
    let output = running.output();
    assert_eq!(code(output.status), 143, "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    for part in ["sqlite ", "sqlite 2", "longest wait", "8 PROCESSES", "first come, first served", "interrupted"] {
        assert!(table.contains(part), "{part} in {table}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let place = Place::new();
    for (args, expected, named) in [
        (&["compare"][..], 64, "URL"),
        (&["compare", "memory:"], 78, "memory"),
        (&["compare", "sqlite:x.db?prefix=mine"], 78, "prefix"),
        (&["compare", "sqlite:x.db", "--seconds", "0"], 64, "--seconds"),
        (&["compare", "sqlite:x.db", "--html", "no/page.html"], 71, "no/page.html"),
        (&["compare", "redis://user:hunter2@127.0.0.1:1"], 69, "127.0.0.1:1"),
    ] {
        let output = place.bare(args).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(output.status), expected, "{output:?}");
        assert!(told.contains(named) && !told.contains("hunter2"), "{output:?}");
    }
}
