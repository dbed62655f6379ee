//! 101. The torture finds what it is there to find: locks that are bad on purpose are caught when their network is
//!      struck, and a good one is not objected to.

mod bad;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::torture::{self, Blow, Site, TortureOptions};
use libtest_mimic::{Arguments, Failed, Trial};
use lock_core::{BackendFactory, DistributedLock, Registry, Result, Target};
use lock_redis::RedisFactory;
use test_servers::RedisServer;

use bad::{Bad, Fault};

/// Redis, spoilt as the URL says: `redis://…?fault=NoDeadline`.
#[derive(Debug)]
struct BadFactory;

#[async_trait]
impl BackendFactory for BadFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["redis"]
    }

    async fn connect(&self, mut target: Target) -> Result<Arc<dyn DistributedLock>> {
        let named = target.params.take("fault").unwrap();
        let (fault, ..) = CAUGHT.into_iter().find(|(fault, ..)| format!("{fault:?}") == named).unwrap();
        Ok(Arc::new(Bad::new(RedisFactory.connect(target).await?, fault)))
    }
}

/// What is wrong, what is done to it, and by which rules it is caught.
const CAUGHT: [(Fault, &[Blow], &[&str]); 5] = [
    (Fault::None, &[Blow::DelayAnswers, Blow::Cut, Blow::Stop, Blow::Kill], &[]),
    (Fault::LeaseFromReply, &[Blow::DelayAnswers, Blow::HoldAnswers], &["B1"]),
    (Fault::NoDeadline, &[Blow::Cut], &["B1", "S0"]),
    (Fault::PlainDelete, &[Blow::Stop], &["B1", "S0"]),
    (Fault::NoExpiry, &[Blow::Kill], &["L2"]),
];

fn main() -> ExitCode {
    let mut registry = Registry::new();
    registry.register(BadFactory);
    if let Some(code) = conformance_tests::worker_main(&registry) {
        return code;
    }
    let trials =
        CAUGHT.map(|(fault, blows, rules)| Trial::test(format!("{fault:?}"), move || is_caught(fault, blows, rules)));
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(trials.len());
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

fn is_caught(fault: Fault, blows: &[Blow], rules: &[&str]) -> Result<(), Failed> {
    let site =
        Site::of(RedisServer::start().apart(), move |addresses| format!("redis://{}?fault={fault:?}", addresses[0]));
    let mut options = TortureOptions::default();
    (options.names, options.blows, options.lease) = (1, blows.to_vec(), Duration::from_millis(500));
    // For every fault several times what it takes to be seen.
    options.duration = options.calm() + Duration::from_secs(45);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = runtime.block_on(torture::run(&options, site))?;
    if let Some(folder) = report.folder.take() {
        std::fs::remove_dir_all(folder)?;
    }
    let broken = report.broken();
    let caught = rules.iter().all(|rule| broken.contains_key(rule)) && rules.is_empty() == broken.is_empty();
    println!("{fault:?}: {broken:?}");
    if caught { Ok(()) } else { Err(format!("not caught by {rules:?}: {report}").into()) }
}
