//! Several processes, and some that are killed. Each is this test program once more.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lock_fence::{Access, file};
use tempfile::tempdir;

const RACERS: u64 = 4;
const TURNS: u64 = 60;

/// The part of a process that another test started: what to do, and with which file.
fn part(number: &str) -> Option<(u64, PathBuf)> {
    let part = std::env::var(number).ok()?;
    let (number, path) = part.split_once(' ').unwrap();
    Some((number.parse().unwrap(), path.into()))
}

fn again(test: &str, variable: &str, number: u64, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", &format!("processes::{test}")]);
    command.env(variable, format!("{number} {}", path.display()));
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn wait_for(child: &mut Child, word: &str) {
    let mut said = String::new();
    let stdout = child.stdout.as_mut().unwrap();
    while !said.contains(word) {
        let mut bytes = [0; 64];
        let count = stdout.read(&mut bytes).unwrap();
        assert!(count > 0, "it ended: {said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

fn access(token: u64) -> Access {
    Access::new("race", token).unwrap()
}

/// The tokens whose writes were accepted, in their order.
fn history(path: &Path) -> Vec<u64> {
    let text = String::from_utf8(file::read(path).unwrap()).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// At first all of them have one token, as the tasks of a holder have, and none is refused. Then each has every fourth
/// token. What a racer writes it adds to what it finds: one that others do not wait for would take something away.
#[test]
fn processes_that_race_lose_no_write_and_accept_none_out_of_order() {
    const RACER: &str = "OARLOCK_TEST_RACER";
    if let Some((number, path)) = part(RACER) {
        println!("ready");
        while !path.with_extension("go").exists() && path.parent().unwrap().exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let rising = (0..TURNS).map(|turn| 1 + turn * RACERS + number);
        let write = |&token: &u64| {
            let line = format!("{token}\n");
            file::update(&path, access(token), |history| [history, line.as_bytes()].concat()).is_ok()
        };
        println!("accepted: {}", std::iter::repeat_n(0, TURNS as usize).chain(rising).filter(write).count());
        return;
    }
    let folder = tempdir().unwrap();
    let path = folder.path().join("history");
    let this = "processes_that_race_lose_no_write_and_accept_none_out_of_order";
    let mut racers: Vec<_> = (0..RACERS).map(|number| again(this, RACER, number, &path)).collect();
    racers.iter_mut().for_each(|racer| wait_for(racer, "ready"));
    fs::write(path.with_extension("go"), "").unwrap();
    let mut accepted = 0;
    for racer in racers {
        let output = racer.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let (_, count) = said.split_once("accepted: ").unwrap();
        accepted += count.lines().next().unwrap().parse::<usize>().unwrap();
    }
    let history = history(&path);
    assert_eq!(history.len(), accepted, "each write that was accepted is there");
    assert!(history.is_sorted(), "{history:?}");
    assert_eq!(history.last(), Some(&(RACERS * TURNS)), "the highest token is never late");
}

/// Wherever a writer is killed, the file is the old one or the new one, with the token of its data.
#[test]
fn a_writer_that_is_killed_leaves_the_old_or_the_new_file() {
    const WRITER: &str = "OARLOCK_TEST_WRITER";
    if let Some((first, path)) = part(WRITER) {
        // Until it is killed, or nobody is there who would do that.
        for token in first..first + 2_000 {
            // Long enough not to be written at once.
            let data = format!("{token}\n").repeat(20_000);
            file::write(&path, access(token), data).unwrap();
            if token == first {
                println!("begun");
            }
        }
    }
    let folder = tempdir().unwrap();
    let path = folder.path().join("data");
    let this = "a_writer_that_is_killed_leaves_the_old_or_the_new_file";
    let (mut first, mut left) = (1, 0);
    for kill in 0..12 {
        let mut writer = again(this, WRITER, first, &path);
        wait_for(&mut writer, "begun");
        std::thread::sleep(Duration::from_micros(kill * 1_300));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let history = history(&path);
        let token = history[0];
        assert!(token >= first, "what was done is there");
        assert!(history.len() == 20_000 && history.iter().all(|&other| other == token), "one writer's data");
        let head = fs::read_to_string(&path).unwrap();
        assert!(head.starts_with(&format!("oarlock-fence 1\n{token} - race\n\n")), "its own token");
        left += u64::from(folder.path().join("data.tmp").exists());
        first = token + 1;
    }
    println!("{left} of 12 were killed between the temporary file and its rename");
    // Nothing of them is in the way, not even their turns.
    file::write(&path, access(first), "1\n").unwrap();
    assert_eq!(history(&path), [1]);
}
