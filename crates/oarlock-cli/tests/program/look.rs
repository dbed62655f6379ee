//! Looking at locks, breaking one, and where the configuration comes from.

use std::fs;
use std::process::{Output, Stdio};

use crate::common::{Place, Terminal, code, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn inspect_tells_who_holds() {
    let place = Place::made();
    assert_eq!(text(&place.output(&["inspect", "job"])), "free\n");
    let free = serde_json::json!({ "name": "job", "held": false, "holder": null, "holders": [], "waiters": [] });
    assert_eq!(place.inspect("job"), free);

    let holder = place.start(&["job", "--lease", "20s"], "echo $OARLOCK_TOKEN >token; sleep 1000");
    let token: u64 = place.wait_lines("token", 1)[0].parse().unwrap();
    let status = place.inspect("job");
    let seen = &status["holder"];
    assert_eq!(status["held"], true);
    assert_eq!(seen["label"], "sh");
    assert_eq!(seen["pid"], holder.pid().as_raw());
    assert_eq!(seen["token"], token.to_string());
    assert!(seen["remaining_ms"].as_u64().unwrap() <= 20_000);
    humantime_utc(seen["since"].as_str().unwrap());
    let fields: Vec<_> = seen.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "held_for_ms",
        "host",
        "kept",
        "label",
        "mode",
        "of",
        "owner",
        "pid",
        "remaining_ms",
        "since",
        "slots",
        "token",
        "value",
    ];
    assert_eq!(fields, expected);
    assert!(seen["kept"] == false && seen["value"].is_null() && seen["mode"] == "exclusive");
    // The first of all, seen at the same moment.
    let mut lasting = seen.as_object().unwrap().keys().filter(|field| !field.ends_with("_ms") && *field != "since");
    assert!(lasting.all(|field| status["holders"][0][field] == seen[field]));
    // The random part that releases the lock is cut short.
    assert!(seen["owner"].as_str().unwrap().rsplit('#').next().unwrap().len() <= 9);

    let table = text(&place.output(&["inspect", "job"]));
    for part in ["NAME", "WAITERS", "job", "sh", &token.to_string(), &holder.pid().to_string()] {
        assert!(table.contains(part), "{part} in {table}");
    }
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.code(), 143);
}

fn humantime_utc(since: &str) {
    assert!(since.ends_with('Z') && since.len() == "2026-01-01T00:00:00.000Z".len(), "{since}");
}

#[test]
fn list_shows_what_is_held_under_a_prefix() {
    let place = Place::new();
    let names = ["a/1", "a/2", "b"];
    let holders: Vec<_> = names.iter().map(|name| place.start(&[name], "echo >>started; sleep 1000")).collect();
    place.wait_lines("started", 3);
    for (prefix, expected) in [("", &names[..]), ("a/", &names[..2]), ("c", &[])] {
        let listed: Value = serde_json::from_slice(&place.output(&["list", prefix, "--json"]).stdout).unwrap();
        let listed: Vec<_> = listed.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect();
        assert_eq!(listed, expected);
        let table = text(&place.output(&["list", prefix]));
        assert_eq!(table.lines().count(), 1 + expected.len(), "{table}");
    }
    drop(holders);
}

#[test]
fn evict_asks_first() {
    let place = Place::made();
    assert_eq!(code(place.output(&["evict", "job", "--yes"]).status), 1, "not held");
    // Longer than a busy machine pauses.
    let holder = place.start(&["job", "--lease", "6s"], "echo >started; sleep 1000");
    place.wait_lines("started", 1);
    let refused = place.output(&["evict", "job"]);
    assert_eq!(code(refused.status), 64);
    assert!(told(&refused).contains("--yes"));
    for (answer, expected, held) in [("n", 1, true), ("", 1, true), ("y", 0, false)] {
        let output = Terminal::start(&place, "$OARLOCK evict job").type_in(&format!("{answer}\n")).output();
        assert_eq!(code(output.status), expected, "{output:?}");
        assert!(text(&output).contains("sh@"), "the holder is named");
        assert_eq!(place.inspect("job")["held"], held);
    }
    assert_eq!(holder.code(), 75);
}

#[test]
fn evict_answers_in_json() {
    let place = Place::new();
    let holder = place.start(&["job", "--lease", "2s"], "echo >started; sleep 1000");
    place.wait_lines("started", 1);
    for evicted in [true, false] {
        let output = place.output(&["evict", "job", "--yes", "--json"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["evicted"], answer["holder"].is_object()), (&Value::Bool(evicted), evicted));
        assert_eq!(code(output.status), i32::from(!evicted));
    }
    assert_eq!(holder.code(), 75);
}

#[test]
fn a_wait_on_a_terminal_names_the_holder_and_elsewhere_draws_nothing() {
    let place = Place::new();
    let holder = place.start(&["job"], "echo >started; sleep 1000");
    place.wait_lines("started", 1);
    let shown = text(&Terminal::start(&place, "$OARLOCK run job --wait 2s -- true").output());
    assert!(shown.contains("waiting:") && shown.contains("sh@"), "{shown}");

    let waiter = place.start(&["job"], "exit 0");
    wait_for("a while", || (place.inspect("job")["holder"]["held_for_ms"].as_u64() > Some(3_000)).then_some(()));
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.code(), 143);
    let output = waiter.output();
    assert_eq!((code(output.status), told(&output).as_str()), (0, ""));
}

#[test]
fn the_configuration_is_taken_in_order() {
    let place = Place::new();
    let url = |name: &str| format!("sqlite:{}", place.path(name).display());
    let config = |name: &str| format!("url = \"{}\"\nlease = \"7s\"\n", url(name));
    let used = |command: &mut std::process::Command| {
        // There is nothing to see in it, but it says where it looks.
        told(&command.output().unwrap()).lines().next().unwrap().to_owned()
    };
    let look = ["-v", "inspect", "job"];
    assert!(used(&mut place.bare(&look)).contains("embedded default"));
    assert!(told(&place.bare(&look).output().unwrap()).contains(place.path(".local/state").to_str().unwrap()));

    fs::create_dir_all(place.path(".config/oarlock")).unwrap();
    fs::write(place.path(".config/oarlock/config.toml"), config("home.db")).unwrap();
    assert!(used(&mut place.bare(&look)).contains("home.db (the config file"));

    fs::create_dir_all(place.path("xdg/oarlock")).unwrap();
    fs::write(place.path("xdg/oarlock/config.toml"), config("xdg.db")).unwrap();
    let xdg = place.path("xdg");
    assert!(used(place.bare(&look).env("XDG_CONFIG_HOME", &xdg)).contains("xdg.db (the config file"));

    fs::write(place.path("own.toml"), config("own.db")).unwrap();
    let own = place.path("own.toml");
    assert!(used(place.bare(&look).env("XDG_CONFIG_HOME", &xdg).env("OARLOCK_CONFIG", &own)).contains("own.db"));
    let mut flag = place.bare(&["-v", "--config", own.to_str().unwrap(), "inspect", "job"]);
    assert!(used(flag.env("OARLOCK_CONFIG", "/missing")).contains("own.db"));

    let mut environment = place.bare(&look);
    environment.env("OARLOCK_CONFIG", &own).env("OARLOCK_URL", url("env.db"));
    assert!(used(&mut environment).contains("env.db (the environment)"));
    let flag = url("flag.db");
    let mut all = place.bare(&["inspect", "job", "-v", "--url", &flag]);
    all.env("OARLOCK_CONFIG", &own).env("OARLOCK_URL", url("env.db"));
    assert!(used(&mut all).contains("flag.db (--url)"));

    // The URL is replaced, the lease of a lower layer stays.
    let mut run = place.bare(&["run", "job", "--url", &flag, "--", env!("CARGO_BIN_EXE_oarlock")]);
    run.args(["inspect", "job", "--json", "--url", &flag]).env("OARLOCK_CONFIG", &own);
    let seen: Value = serde_json::from_slice(&run.output().unwrap().stdout).unwrap();
    let left = seen["holder"]["remaining_ms"].as_u64().unwrap();
    assert!((1..=7_000).contains(&left), "{left}");
}

#[test]
fn what_is_unknown_is_refused() {
    let place = Place::new();
    fs::write(place.path("bad.toml"), "leese = \"7s\"\n").unwrap();
    let etcd = if cfg!(feature = "etcd") { (69, "127.0.0.1:1") } else { (78, "feature \"etcd\"") };
    for (args, variable, expected, named) in [
        (&["--config", "bad.toml", "inspect", "job"][..], None, 78, "leese"),
        (&["--config", "missing.toml", "inspect", "job"], None, 78, "missing.toml"),
        (&["inspect", "job"], Some(("OARLOCK_LEESE", "7s")), 78, "OARLOCK_LEESE"),
        (&["--url", "sqlite:x.db?leese=7s", "inspect", "job"], None, 78, "leese"),
        (&["--url", "etcd://user:hunter2@127.0.0.1:1", "inspect", "job"], None, etcd.0, etcd.1),
        (&["--url", "redis://user:hunter2@127.0.0.1:1", "inspect", "job"], None, 69, "127.0.0.1:1"),
        (&["--url", "nonsense", "inspect", "job"], None, 78, "scheme"),
        (&["inspect", "job", "--jsn"], None, 64, "--jsn"),
        (&["inspect", ""], None, 64, "empty"),
        (&["leader", ""], None, 64, "empty"),
        (&["leader", "job", "--watch", "--exit-code"], None, 64, "--exit-code"),
        (&["run", "job"], None, 64, "COMMAND"),
        (&["run", "job", "--wait", "soon", "--", "true"], None, 64, "soon"),
        (&["run", "job", "--wait", "1s", "--try", "--", "true"], None, 64, "--try"),
    ] {
        let output = place.bare(args).envs(variable).output().unwrap();
        assert_eq!(code(output.status), expected, "{args:?}: {output:?}");
        assert!(told(&output).contains(named), "{args:?}: {output:?}");
        assert!(!told(&output).contains("hunter2"));
    }
}

#[test]
fn a_store_that_cannot_be_used_is_an_error_and_not_a_conflict() {
    let place = Place::new();
    fs::write(place.path("text"), "this is no database, but a text that is long enough to be looked at").unwrap();
    let output = place.bare(&["--url", "sqlite:text", "run", "job", "--try", "--", "true"]).output().unwrap();
    assert_eq!(code(output.status), 69, "{output:?}");
    assert!(told(&output).contains("text"), "{output:?}");
}

#[test]
fn a_reader_that_leaves_early_is_no_panic() {
    let place = Place::new();
    // It has left before anything is written: all that is written would fit into the pipe.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = place.oarlock(&["completions", "bash"]);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(output.status), told(&output).as_str()), (141, ""));
}

#[test]
fn a_store_that_locks_within_one_process_is_refused() {
    let place = Place::new();
    let output = place.bare(&["--url", "memory:", "run", "job", "--", "true"]).output().unwrap();
    assert_eq!(code(output.status), 78, "{output:?}");
    assert!(told(&output).contains("memory"), "{output:?}");
}

#[test]
fn a_url_in_the_wrong_place_is_not_quoted() {
    let place = Place::new();
    let output = place.bare(&["list", "a", "redis://user:hunter2@host"]).output().unwrap();
    assert_eq!(code(output.status), 64, "{output:?}");
    assert!(told(&output).contains("usage") && !told(&output).contains("hunter2"), "{output:?}");
}

#[test]
fn a_cause_is_told_once() {
    let place = Place::new();
    fs::write(place.path("config"), "maxhold = '1s'\n").unwrap();
    let output = place.bare(&["--config", "config", "list"]).output().unwrap();
    assert_eq!(told(&output).matches("maxhold").count(), 1, "{output:?}");
}

#[test]
fn a_wait_of_zero_tries_once() {
    let place = Place::new();
    assert_eq!(code(place.output(&["run", "job", "--wait", "0", "--", "true"]).status), 0);
    let _holder = place.start(&["job"], "touch held; sleep 1000");
    wait_for("the holder", || place.path("held").exists().then_some(()));
    assert_eq!(code(place.output(&["run", "job", "--wait", "0", "--", "true"]).status), 1);
}

#[test]
fn the_schema_is_printed_without_a_server() {
    let place = Place::new();
    let printed = |args: &[&str]| -> Output { place.bare(&[&["schema"], args].concat()).output().unwrap() };
    let schema = |url: &str| printed(&[url]);
    for url in ["postgres://nowhere/app?table=app.locks", "mysql://nowhere/app?table=app.locks"] {
        for printed in [schema(url), printed(&["--url", url])] {
            assert!(printed.status.success(), "{printed:?}");
            assert!(String::from_utf8_lossy(&printed.stdout).contains("CREATE TABLE IF NOT EXISTS app.locks_lock ("));
        }
    }
    assert_eq!(schema("sqlite:x").status.code(), Some(78));
    assert_eq!(schema("postgres://nowhere?table=a;b").status.code(), Some(78));
}

/// What lies in the folder of a place.
fn files(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.path(".")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

const LOOKS: [&[&str]; 8] = [
    &["list"],
    &["list", "--json"],
    &["inspect", "job"],
    &["leader", "job"],
    &["top"],
    &["doctor"],
    &["evict", "job", "--yes"],
    &["inspect", "job", "--exit-code"],
];

#[test]
fn looking_makes_nothing() {
    let place = Place::new();
    for look in LOOKS {
        for (url, says) in [(Some("sqlite:lokcs.db"), "lokcs.db"), (None, ".local/state/oarlock/locks.db")] {
            let url = url.map(|url| ["--url", url]);
            let output = place.bare(&[look, url.as_ref().map_or(&[][..], |url| url)].concat()).output().unwrap();
            assert_eq!((code(output.status), text(&output).as_str()), (69, ""), "{look:?}");
            assert!(told(&output).contains(says) && told(&output).contains("does not exist"), "{output:?}");
            assert_eq!(files(&place), Vec::<String>::new(), "{look:?}");
        }
    }
}

#[test]
fn looking_adds_nothing_to_the_database_of_another_application() {
    let place = Place::new();
    // A database without tables: what `sqlite3 other.db VACUUM` leaves.
    fs::write(place.path("other.db"), "").unwrap();
    for look in LOOKS {
        let output = place.bare(&[look, &["--url", "sqlite:other.db"]].concat()).output().unwrap();
        assert_eq!(code(output.status), 69, "{look:?}");
        assert!(told(&output).contains("no locks of Oarlock"), "{output:?}");
        assert_eq!((files(&place), place.read("other.db").len()), (vec!["other.db".to_owned()], 0), "{look:?}");
    }
}

#[test]
fn no_locks_are_said_on_a_terminal_and_are_a_head_elsewhere() {
    let place = Place::made();
    let listed = place.output(&["list"]);
    assert_eq!((text(&listed).lines().count(), told(&listed).as_str()), (1, ""));
    assert_eq!(text(&place.output(&["list", "--json"])).trim(), "[]");
    let shown = text(&Terminal::start(&place, "$OARLOCK list").output());
    assert!(shown.contains("no locks") && !shown.contains("NAME"), "{shown}");
}

#[test]
fn whether_a_lock_is_held_is_an_exit_code_for_who_asks() {
    let place = Place::made();
    let codes = || ["--exit-code", "--json"].map(|flag| code(place.output(&["inspect", "job", flag]).status));
    assert_eq!(codes(), [1, 0]);
    let _holder = place.start(&["job"], "touch held; sleep 1000");
    wait_for("the holder", || place.path("held").exists().then_some(()));
    assert_eq!(codes(), [0, 0]);
}

#[test]
fn a_doctor_without_findings_says_so() {
    let place = Place::made();
    assert_eq!(text(&place.output(&["doctor"])), "no setting voids a promise\n");
}

#[test]
fn tokens_are_raised_for_a_resource_that_has_seen_higher_ones() {
    let place = Place::new();
    let next = || -> u64 {
        let output = place.output(&["run", "job", "--", "sh", "-c", "echo $OARLOCK_TOKEN"]);
        text(&output).trim().parse().unwrap()
    };
    let above = next() + (1 << 40);
    let raised = place.output(&["tokens", "raise", "job", "--above", &above.to_string()]);
    assert_eq!(
        (code(raised.status), told(&raised)),
        (0, format!("oarlock: the next token of \"job\" is above {above}\n"))
    );
    assert!(next() > above);
    assert_eq!(code(place.output(&["tokens", "raise", "job", "--above", "-1"]).status), 64);
    let far = place.output(&["tokens", "raise", "job", "--above", &u64::MAX.to_string()]);
    assert_eq!(code(far.status), 64);
    assert!(told(&far).contains("is the highest floor"), "{}", told(&far));
    // And by a setting.
    let floor = above + (1 << 40);
    let output = place.output(&[
        "--url",
        &format!("{}?token_floor={floor}", place.url()),
        "run",
        "job",
        "--",
        "sh",
        "-c",
        "echo $OARLOCK_TOKEN",
    ]);
    assert!(text(&output).trim().parse::<u64>().unwrap() > floor, "{}", told(&output));
}
