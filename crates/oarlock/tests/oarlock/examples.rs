//! The examples hold what they show, on a store of their own.
// Each example has a `main`, which is not what is called here.
#![allow(dead_code)]

#[path = "../../examples/fenced_record.rs"]
mod fenced_record;
#[cfg(feature = "fence-http")]
#[path = "../../examples/fenced_service.rs"]
mod fenced_service;
#[cfg(feature = "blocking")]
#[path = "../../examples/leader_address.rs"]
mod leader_address;
#[cfg(feature = "blocking")]
#[path = "../../examples/once_per_slot.rs"]
mod once_per_slot;
#[path = "../../examples/shared_token.rs"]
mod shared_token;
#[cfg(feature = "blocking")]
#[path = "../../examples/without_a_runtime.rs"]
mod without_a_runtime;

use std::io;
use std::process::Command;

use oarlock::Config;
use tempfile::TempDir;

use crate::scheduled_job;

fn store() -> (TempDir, Config) {
    let dir = TempDir::new().unwrap();
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    (dir, Config::from_url(&url).unwrap())
}

#[tokio::test]
async fn a_scheduled_job_runs_once_for_each_slot() {
    let (_dir, config) = store();
    scheduled_job::demo(config).await.unwrap();
}

#[tokio::test]
async fn a_shared_token_is_refreshed_once() {
    let (_dir, config) = store();
    shared_token::demo(config).await.unwrap();
}

#[test]
fn a_paused_writer_is_refused() {
    let (dir, config) = store();
    fenced_record::demo(config, dir.path()).unwrap();
}

#[cfg(feature = "fence-http")]
#[test]
fn a_paused_client_of_a_service_is_refused() {
    let (dir, config) = store();
    fenced_service::demo(config, dir.path()).unwrap();
}

#[cfg(feature = "blocking")]
#[test]
fn a_plain_main_loses_no_increment() {
    let (_dir, config) = store();
    without_a_runtime::demo(config).unwrap();
}

/// This test program, for the test of this name alone: there a process has the part that its environment gives it.
fn again(test: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "--nocapture", &format!("examples::{test}")]);
    Ok(command)
}

#[cfg(feature = "blocking")]
#[test]
fn a_cron_job_runs_once_for_each_slot_whatever_the_clocks_say() {
    const THIS: &str = "a_cron_job_runs_once_for_each_slot_whatever_the_clocks_say";
    match once_per_slot::part() {
        Some(part) => part.unwrap(),
        None => once_per_slot::demo(|| again(THIS)).unwrap(),
    }
}

#[cfg(feature = "blocking")]
#[test]
fn a_leader_is_found_after_the_first_one_was_killed() {
    const THIS: &str = "a_leader_is_found_after_the_first_one_was_killed";
    match leader_address::part() {
        Some(part) => part.unwrap(),
        None => leader_address::demo(|| again(THIS)).unwrap(),
    }
}
