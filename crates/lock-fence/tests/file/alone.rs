//! One process.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use lock_core::{ErrorKind, Result};
use lock_fence::{Access, Stale, file};
use tempfile::tempdir;

fn access(token: u64) -> Access {
    Access::new("report", token).unwrap()
}

#[track_caller]
fn assert_stale(result: Result<()>, presented: u64, newest: u64) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    assert_eq!(Stale::of(&error), Some(&Stale { resource: "report".to_owned(), presented, newest }));
}

#[test]
fn a_writer_that_was_paused_is_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("report.json");
    assert_eq!(file::read(&path).unwrap(), b"");
    for (token, text) in [(7, "a"), (7, "b"), (9, "c")] {
        file::write(&path, access(token), text).unwrap();
        assert_eq!(file::read(&path).unwrap(), text.as_bytes());
    }
    assert_stale(file::write(&path, access(7), "late"), 7, 9);
    assert_stale(file::update(&path, access(8), |_| panic!("nobody asks what a late writer writes")), 8, 9);
    assert_stale(file::check(&path, access(8)), 8, 9);
    assert_eq!(file::read(&path).unwrap(), b"c");
    // A check is enough to refuse who is earlier, and leaves the data.
    file::check(&path, access(10)).unwrap();
    assert_stale(file::write(&path, access(9), "late"), 9, 10);
    assert_eq!(file::read(&path).unwrap(), b"c");
    // A resource may have several locks.
    file::write(&path, Access::new("other", 1_u64).unwrap(), "d").unwrap();
    assert_stale(file::check(&path, access(9)), 9, 10);
}

#[test]
fn readers_refuse_nobody_and_each_slot_has_a_mark() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    file::check(&path, access(9).shared()).unwrap();
    assert!(!path.exists(), "a reader leaves nothing");
    file::check(&path, access(5)).unwrap();
    for reader in [7, 6, 5] {
        file::check(&path, access(reader).shared()).unwrap();
    }
    assert_stale(file::check(&path, access(4).shared()), 4, 5);
    file::check(&path, access(9).with_slots([1])).unwrap();
    file::check(&path, access(7).with_slots([0])).unwrap();
    assert_stale(file::check(&path, access(8).with_slots([0, 1])), 8, 9);
    file::check(&path, access(7).with_slots([0])).unwrap();
}

/// A write ended between the temporary file and the rename.
#[test]
fn what_a_crash_left_is_written_over() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("report");
    file::write(&path, access(7), "old").unwrap();
    for left in ["", "oarlock-fence 1\n99 - rep", "oarlock-fence 1\n99 - report\n\nhalf, and longer than what comes"] {
        fs::write(folder.path().join("report.tmp"), left).unwrap();
        assert_eq!(file::read(&path).unwrap(), b"old");
        file::write(&path, access(7), "old").unwrap();
        assert_eq!(file::read(&path).unwrap(), b"old");
        assert!(!folder.path().join("report.tmp").exists());
    }
}

#[test]
fn a_file_that_is_not_ours_is_left_alone() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("data");
    for text in ["", "{}", "oarlock-fence 1\n"] {
        fs::write(&path, text).unwrap();
        let errors = [file::write(&path, access(7), ""), file::check(&path, access(7)), file::read(&path).map(drop)];
        for error in errors.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("move this one away"), "{error}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn what_the_system_refuses_says_what_it_was() {
    let folder = tempdir().unwrap();
    let nested = folder.path().join("nested");
    fs::create_dir(&nested).unwrap();
    for (path, kind, says) in [
        (nested.join("none/report"), ErrorKind::Refused, "cannot find"),
        (nested.clone(), ErrorKind::Invalid, "names no file"),
        (nested.join(".."), ErrorKind::Invalid, "names no file"),
        ("".into(), ErrorKind::Invalid, "names no file"),
    ] {
        let error = file::write(&path, access(7), "").unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// Who comes by a link finds the same marks, and the link stays.
#[test]
fn links_and_permissions_stay() {
    let folder = tempdir().unwrap();
    let (path, link) = (folder.path().join("report"), folder.path().join("link"));
    file::write(&path, access(7), "a").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(Path::new("report"), &link).unwrap();
    file::write(&link, access(9), "b").unwrap();
    assert_stale(file::write(&path, access(7), "late"), 7, 9);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(!folder.path().join("link.lock").exists());
}

/// What is held keeps those out who would come in between, and no others.
#[test]
fn what_is_held_keeps_others_waiting() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let slots = |slots: &[u32]| access(7).with_slots(slots.iter().copied());
    for (holder, other, waits) in [
        (access(7), access(7), true),
        (access(7), access(7).shared(), true),
        (access(7).shared(), access(7), true),
        (access(7).shared(), access(7).shared(), false),
        (slots(&[0]), slots(&[0]), true),
        (slots(&[0, 1]), slots(&[1, 2]), true),
        (slots(&[0]), slots(&[1]), false),
    ] {
        let held = file::hold(&path, &holder).unwrap();
        let (done, is_done) = channel();
        std::thread::scope(|scope| {
            let path = &path;
            let waiter = other.clone();
            scope.spawn(move || {
                drop(file::hold(path, &waiter).unwrap());
                done.send(()).unwrap();
            });
            if waits {
                let waited = is_done.recv_timeout(Duration::from_millis(50));
                assert_eq!(waited, Err(RecvTimeoutError::Timeout), "{holder:?} {other:?}");
                drop(held);
                is_done.recv().unwrap();
            } else {
                is_done.recv().unwrap();
                drop(held);
            }
        });
    }
}

/// A link to a file that is not there yet leads to its place: who comes by the link and who does not have the same marks.
#[test]
fn a_link_to_a_file_that_is_still_to_be_made_stays() {
    let folder = tempdir().unwrap();
    let [shared, host] = ["shared", "host"].map(|name| folder.path().join(name));
    for folder in [&shared, &host] {
        fs::create_dir(folder).unwrap();
    }
    symlink("../shared/state", host.join("first")).unwrap();
    symlink("first", host.join("second")).unwrap();
    file::check(host.join("second"), access(9)).unwrap();
    assert_stale(file::check(shared.join("state"), access(7)), 7, 9);
    for link in ["first", "second"] {
        assert!(fs::symlink_metadata(host.join(link)).unwrap().is_symlink(), "{link}");
        assert_stale(file::check(host.join(link), access(7)), 7, 9);
    }
    symlink("circle", host.join("circle")).unwrap();
    assert_eq!(file::check(host.join("circle"), access(9)).unwrap_err().kind(), ErrorKind::Refused);
    symlink("../none/state", host.join("nowhere")).unwrap();
    assert_eq!(file::check(host.join("nowhere"), access(9)).unwrap_err().kind(), ErrorKind::Refused);
}

/// Somebody tidies up while one waits: it has its turn after the one who came by the new lock file.
#[test]
fn whoever_waited_at_a_lock_file_that_was_removed_waits_at_the_new_one() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let first = file::hold(&path, access(7)).unwrap();
    let (ended, end) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| ended.send(file::hold(&path, access(8)).map(drop)));
        assert_eq!(end.recv_timeout(Duration::from_millis(200)).unwrap_err(), RecvTimeoutError::Timeout);
        fs::remove_file(folder.path().join("state.lock")).unwrap();
        let second = file::hold(&path, access(9)).unwrap();
        drop(first);
        assert_eq!(end.recv_timeout(Duration::from_millis(200)).unwrap_err(), RecvTimeoutError::Timeout);
        drop(second);
        assert_stale(end.recv().unwrap(), 8, 9);
    });
}
