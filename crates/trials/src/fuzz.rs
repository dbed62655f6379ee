//! The targets in `fuzz/`: whatever reads text is given what leads deeper into it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The programs in this folder are the targets.
const TARGETS: &str = "fuzz/targets";

/// What each begins with, in a folder of its own.
const SEEDS: &str = "fuzz/seeds";

/// Where each leaves what it failed with.
const FAILED: &str = "fuzz/artifacts";

/// What led deeper, kept for the next time.
const FOUND: &str = "target/fuzz-corpus";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The targets to run, all of them if none is named.
    targets: Vec<String>,
    /// For how long each runs.
    #[arg(long, default_value_t = 8)]
    seconds: u32,
}

/// Can targets be run here?
pub(crate) fn is_possible() -> bool {
    let version = cargo_fuzz(&["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Runs the targets, and fails with the first that does.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    if !is_possible() {
        return Err("this needs cargo-fuzz: cargo install cargo-fuzz --locked".to_owned());
    }
    let targets = if options.targets.is_empty() { all()? } else { options.targets.clone() };
    targets.iter().try_for_each(|target| one(target, options.seconds))
}

fn all() -> Result<Vec<String>, String> {
    let unreadable = |error| format!("{TARGETS} cannot be read: {error}");
    let files = fs::read_dir(TARGETS).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let name = |file: fs::DirEntry| Some(file.path().file_stem()?.to_str()?.to_owned());
    let mut targets: Vec<_> = files.into_iter().filter_map(name).collect();
    targets.sort();
    Ok(targets)
}

fn one(target: &str, seconds: u32) -> Result<(), String> {
    println!("== cargo fuzz run {target}, for {seconds} s");
    let [found, seeds, failed] = [FOUND, SEEDS, FAILED].map(|folder| format!("{folder}/{target}"));
    fs::create_dir_all(&found).map_err(|error| format!("{found} cannot be made: {error}"))?;
    // Nothing here is unsafe, and without a sanitizer it goes much faster.
    let how = ["run", "--sanitizer", "none", "--target-dir", "target", target, &found, &seeds, "--"];
    let time = format!("-max_total_time={seconds}");
    // No input may take longer, however busy the machine is. The longest name has 512 bytes.
    let limits = [&time, "-timeout=60", "-max_len=1024", "-verbosity=0", "-print_final_stats=1"];
    match cargo_fuzz(&how).args(limits).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let input = latest(&failed).map(|file| format!("; it failed with {}", file.display())).unwrap_or_default();
            Err(format!("the target {target}: {status}{input}"))
        }
        Err(error) => Err(format!("cargo fuzz cannot be run: {error}")),
    }
}

/// The file that was written last.
fn latest(folder: &str) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.flatten();
    files.map(|file| file.path()).max_by_key(|file| fs::metadata(file).and_then(|file| file.modified()).ok())
}

fn cargo_fuzz(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("fuzz").args(arguments);
    command
}
