//! Initial data of servers, which take a while to make and a moment to copy.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::geteuid;

use crate::process::{Disk, folder, give_away};

/// Copies the initial data of this program to `to`. They are made once for all processes, which wait for whoever is at
/// it, and kept in cargo's target folder; another version of the program has other data.
pub(crate) fn copy_of_initial(program: &Path, fill: impl FnOnce(&Path), to: &Path) {
    let kept = kept().join(format!("{}-{}", name_of(program), geteuid()));
    let lock = File::create(kept.with_added_extension("lock")).expect("a file in the target folder");
    lock.lock().expect("a file of our own");
    if !kept.exists() {
        // The server's user may not come as far as the target folder.
        let scratch = folder(Disk::Memory);
        let new = scratch.path().join("data");
        fs::create_dir(&new).expect("a new folder");
        give_away(&new);
        fill(&new);
        let partial = kept.with_added_extension("partial");
        // Of somebody who was killed here.
        let _ = fs::remove_dir_all(&partial);
        copy(&new, &partial);
        fs::rename(&partial, &kept).expect("our own folder");
    }
    drop(lock);
    copy(&kept, to);
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp is installed");
    assert!(copied.success(), "{} cannot be copied", from.display());
}

/// The program and its version, as it tells them, without what no file's name should have.
fn name_of(program: &Path) -> String {
    let told = Command::new(program).arg("--version").output();
    let told = told.unwrap_or_else(|error| panic!("{}: {error}", program.display())).stdout;
    let told = String::from_utf8_lossy(&told);
    let words = told.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

fn kept() -> PathBuf {
    kept_as("test-servers")
}

/// A folder of this name for what outlives a run, in cargo's target folder: what cargo made is in a folder with a
/// certain file in it, and what it did not make may keep its things beside itself.
///
/// # Panics
/// If it cannot be made.
pub fn kept_as(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program is somewhere");
    let target = this.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file()).or(this.parent());
    let kept = target.expect("it is in a folder").join(name);
    fs::create_dir_all(&kept).expect("a folder in the target folder");
    kept
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_makes_them_and_the_others_wait() {
        let made = AtomicU32::new(0);
        let places = folder(Disk::Memory);
        // It tells another version than any other test's.
        let program = places.path().join("program");
        fs::write(&program, format!("#!/bin/sh\necho test {}", std::process::id())).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let fill = |data: &Path| {
            made.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(50));
            fs::write(data.join("file"), "whole").unwrap();
        };
        // Whoever fails in the middle leaves it to the next.
        let failing = std::panic::catch_unwind(|| copy_of_initial(&program, |_| panic!("to order"), Path::new("no")));
        assert!(failing.is_err());
        std::thread::scope(|scope| {
            for number in 0..8 {
                let to = places.path().join(number.to_string());
                let (program, fill) = (&program, &fill);
                scope.spawn(move || copy_of_initial(program, fill, &to));
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
        for number in 0..8 {
            assert_eq!(fs::read_to_string(places.path().join(format!("{number}/file"))).unwrap(), "whole");
        }
        let name = format!("{}-{}", name_of(&program), geteuid());
        fs::remove_dir_all(kept().join(&name)).unwrap();
        fs::remove_file(kept().join(format!("{name}.lock"))).unwrap();
    }
}
