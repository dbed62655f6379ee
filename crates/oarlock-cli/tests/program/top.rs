//! `oarlock top`, on a terminal and elsewhere.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{Place, code, on_terminal, wait_for};
use nix::sys::signal::Signal;

/// `top` on a terminal of 24 lines with 120 columns, and what was written to it.
struct Watched {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Watched {
    fn start(place: &Place) -> Self {
        // The line behind it tells whether the terminal is as it was.
        let line = "stty cols 120 rows 24; before=$(stty -g); $OARLOCK top; code=$?; \
                    [ \"$before\" = \"$(stty -g)\" ] && echo same; echo \"code $code\"";
        let mut child = on_terminal(place, line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Self { child, keys, shown }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for text that comes after what was seen until now, or of which this is a part.
    fn wait(&self, text: &str) {
        wait_for(text, || self.shown.lock().unwrap().contains(text).then_some(()));
    }

    fn forget(&self) {
        self.shown.lock().unwrap().clear();
    }

    fn end(mut self) -> String {
        self.child.wait().unwrap();
        self.wait("code ");
        let shown = self.shown.lock().unwrap();
        shown.clone()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn on_a_terminal_it_watches_and_evicts_after_asking() {
    let place = Place::new();
    let holder = place.start(&["job", "--lease", "2s"], "echo >started; sleep 1000");
    place.wait_lines("started", 1);
    let mut watched = Watched::start(&place);
    watched.wait("1 held, 0 waiting");
    watched.wait(&holder.pid().to_string());
    let _waiter = place.start(&["job"], "sleep 1000");
    watched.wait("1 held, 1 waiting");
    watched.wait("waiting for job:");

    watched.press("e");
    watched.wait("End this hold? [y/N]");
    watched.press("n");
    watched.forget();
    watched.wait("1 held, 1 waiting");
    assert_eq!(place.inspect("job")["holder"]["pid"], holder.pid().as_raw());

    watched.press("e");
    watched.wait("End this hold? [y/N]");
    watched.press("y");
    watched.wait("ended the hold");
    assert_eq!(holder.code(), 75);
    watched.press("q");
    let shown = watched.end();
    assert!(shown.contains("same") && shown.contains("code 0"), "{shown}");
}

#[test]
fn it_gives_the_terminal_back_however_it_ends() {
    let place = Place::made();
    let mut watched = Watched::start(&place);
    watched.wait("0 held, 0 waiting");
    watched.press("\x03");
    let shown = watched.end();
    assert!(shown.contains("same") && shown.contains("code 130"), "{shown}");

    let watched = Watched::start(&place);
    watched.wait("0 held, 0 waiting");
    let top = wait_for("the program", || program_below(watched.child.id()));
    nix::sys::signal::kill(top, Signal::SIGTERM).unwrap();
    let shown = watched.end();
    assert!(shown.contains("same") && shown.contains("code 143"), "{shown}");
}

/// The `oarlock` among the descendants of a process.
fn program_below(pid: u32) -> Option<nix::unistd::Pid> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().find_map(|child| {
        let pid: u32 = child.parse().unwrap();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "oarlock" { Some(nix::unistd::Pid::from_raw(pid as i32)) } else { program_below(pid) }
    })
}

#[test]
fn a_terminal_that_cannot_be_drawn_on_gets_the_table_once() {
    let place = Place::new();
    let holder = place.start(&["job"], "echo >started; sleep 1000");
    place.wait_lines("started", 1);
    // Ended if it watches: nobody is there to leave it.
    let line = "TERM=dumb timeout 60 $OARLOCK top";
    let output = on_terminal(&place, line).stdin(Stdio::piped()).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains(&holder.pid().to_string()) && !shown.contains('\x1b'), "{shown}");
    assert_eq!(code(output.status), 0, "{shown}");
}

#[test]
fn elsewhere_it_prints_a_table_once() {
    let place = Place::new();
    let holder = place.start(&["a/job"], "echo >>started; sleep 1000");
    let _other = place.start(&["b/job"], "echo >>started; sleep 1000");
    place.wait_lines("started", 2);
    for args in [&["top"][..], &["top", "--once"]] {
        let table = String::from_utf8(place.output(args).stdout).unwrap();
        assert!(table.contains("NAME") && table.contains(&holder.pid().to_string()), "{table}");
        assert_eq!(table.lines().count(), 3);
        assert!(!table.contains('\x1b'));
    }
    for store in [&[&*place.url()][..], &["--url", &place.url()]] {
        let output = place.bare(&[&["top"], store, &["--prefix", "a/"]].concat()).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);
    }
    assert_eq!(code(place.bare(&["top", "redis://127.0.0.1:1"]).output().unwrap().status), 69);
}
