//! Builds everything that is tested, each thing once, and says what there is to run.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::job::Job;
use crate::cargo;

/// With every feature, in one go: other features, or programs without their tests, would have most of it built again.
/// The tests that need servers do not run unless they are named.
const BUILD: &str = "test --no-run --locked --workspace --all-features --lib --bins --examples --test * \
     --message-format=json-render-diagnostics";

/// What the test command tortures, long enough for many blows; a store that forgets, with what makes it forget.
const TORTURED: [&[&str]; 14] = [
    &["sqlite"],
    &["redis", "--with", "redis-py"],
    &["redis-forgetful", "--faults", "stop,cut,kill-server,restart-server"],
    &["memcached"],
    &["zookeeper", "--with", "curator,kazoo"],
    &["zookeeper-rw", "--with", "curator-rw,kazoo-rw"],
    &["etcd", "--with", "go,etcdctl"],
    &["postgres"],
    &["postgres-session"],
    &["mysql"],
    &["mysql-session"],
    &["quorum-redis"],
    &["quorum-postgres"],
    &["quorum-sqlite"],
];

/// It tells those who only say `cargo test` what they left out.
const REMINDER: &str = "xtask left_out";

/// Builds all programs.
pub(crate) fn jobs() -> Result<Vec<Job>, String> {
    let built = build(&BUILD.split_whitespace().collect::<Vec<_>>())?;
    let mut jobs: Vec<_> = built.iter().filter(|built| built.is_test).map(Built::job).collect();
    jobs.retain(|job| job.name != REMINDER);
    let trials =
        built.iter().find(|built| !built.is_test && built.target == "trials").ok_or("cargo built no trials")?;
    for store in TORTURED {
        let arguments = [&["torture"], store, &["--minutes", "0.5", "--seed", "7"]].concat();
        jobs.push(Job::new(format!("torture {}", store[0]), &trials.program, &arguments, &trials.folder));
    }
    let here = Path::new(".");
    if can_fuzz() {
        jobs.push(Job::new("fuzz".to_owned(), &trials.program, &["fuzz", "--seconds", "8"], here));
    } else {
        println!("== without cargo-fuzz, the property tests stand in for the targets in fuzz/");
    }
    let documents = ["test", "--quiet", "--doc", "--locked", "--workspace", "--all-features"];
    jobs.push(Job::new("documents".to_owned(), Path::new(&cargo(&[]).get_program()), &documents, here));
    Ok(jobs)
}

struct Built {
    package: String,
    target: String,
    /// The package's.
    folder: PathBuf,
    program: PathBuf,
    is_test: bool,
}

impl Built {
    /// In the folder in which cargo would run it.
    fn job(&self) -> Job {
        let target = if self.package.replace('-', "_") == self.target.replace('-', "_") { "src" } else { &self.target };
        Job::new(format!("{} {target}", self.package), &self.program, &[], &self.folder)
    }
}

/// The programs that cargo says it has built, or had.
fn build(arguments: &[&str]) -> Result<Vec<Built>, String> {
    println!("== cargo {}", arguments.join(" "));
    let failed = |error: std::io::Error| format!("cargo cannot be run: {error}");
    let mut building = cargo(arguments).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let said = BufReader::new(building.stdout.take().expect("it is piped"));
    let mut built = Vec::new();
    for line in said.lines() {
        built.extend(serde_json::from_str(&line.map_err(failed)?).ok().and_then(program));
    }
    let status = building.wait().map_err(failed)?;
    if status.success() { Ok(built) } else { Err(format!("cargo {}: {status}", arguments[0])) }
}

/// What cargo says of something it has built, if that is a program.
fn program(said: Value) -> Option<Built> {
    let program = PathBuf::from(said.get("executable")?.as_str()?);
    let folder = Path::new(said.get("manifest_path")?.as_str()?).parent()?.to_owned();
    Some(Built {
        package: folder.file_name()?.to_str()?.to_owned(),
        target: said.pointer("/target/name")?.as_str()?.to_owned(),
        is_test: said.pointer("/profile/test")?.as_bool()?,
        folder,
        program,
    })
}

fn can_fuzz() -> bool {
    let version = cargo(&["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let said = |line: &str| program(serde_json::from_str(line).unwrap());
        let test = said(
            r#"{"reason":"compiler-artifact","manifest_path":"/x/crates/lock-sql/Cargo.toml",
                "target":{"kind":["test"],"name":"fork"},"profile":{"test":true},"executable":"/x/t/fork-1"}"#,
        );
        let job = test.unwrap().job();
        assert_eq!(job.name, "lock-sql fork");
        let library = said(
            r#"{"reason":"compiler-artifact","manifest_path":"/x/crates/lock-sql/Cargo.toml",
                "target":{"name":"lock_sql"},"profile":{"test":true},"executable":"/x/t/lock_sql-1"}"#,
        );
        assert_eq!(library.unwrap().job().name, "lock-sql src");
        assert!(said(r#"{"reason":"compiler-artifact","executable":null}"#).is_none());
        assert!(said(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
