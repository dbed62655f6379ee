//! Settings of the server that void a promise.

use lock_core::{Finding, Result, warn_of};

use crate::MemcachedLock;
use crate::connection::Failed;
use crate::error;
use crate::process::{Statistics, greet};
use crate::read::done;
use crate::wire::Reply;

impl MemcachedLock {
    /// Refuses what cannot keep locks, and logs what lets it evict some.
    pub(crate) async fn check(&self) -> Result<()> {
        let (general, settings) = self.statistics().await?;
        warn_of(&evictions(&general, &settings), &self.client.server.address);
        Ok(())
    }

    pub(crate) async fn findings(&self) -> Result<Vec<Finding>> {
        let (general, settings) = self.statistics().await?;
        let mut findings = evictions(&general, &settings);
        findings.extend(others(&settings));
        Ok(findings)
    }

    async fn statistics(&self) -> Result<(Statistics, Statistics)> {
        let read = self.client.retrying(|link| async move {
            let [general, settings] = done(link.ask(greet()).await?)?;
            let (Reply::List(general), Reply::List(settings)) = (general, settings) else {
                return Err(Failed::from(error::unexpected()));
            };
            Ok((Statistics(general), Statistics(settings)))
        });
        read.await
    }
}

/// Does the server throw locks out to make room? Did it?
fn evictions(general: &Statistics, settings: &Statistics) -> Vec<Finding> {
    const VOIDS: &str = "exclusion: a lock whose item is thrown out is free, while its holder believes to have it";
    let mut findings = Vec::new();
    if settings.text("evictions") != Some("off") {
        let advice = "start memcached with -M, and for locks alone: then it refuses writes when its memory is full";
        findings.push(Finding::new("evictions are on", VOIDS, advice));
    }
    let evicted = ["evictions", "slab_reassign_evictions_nomem"].map(|name| general.number(name).unwrap_or_default());
    let evicted: u64 = evicted.iter().sum();
    if evicted > 0 {
        let advice = "give memcached more memory (-m), or the locks a server of their own";
        findings.push(Finding::new(format!("{evicted} items were evicted since the start"), VOIDS, advice));
    }
    if let (Some(used), Some(limit)) = (general.number("bytes"), general.number("limit_maxbytes"))
        && used > limit / 5 * 4
    {
        let setting = format!("{} of {} MiB of memory are used", used >> 20, limit >> 20);
        let voids = "exclusion: a write for which there is no memory removes what stands at its key";
        findings.push(Finding::new(
            setting,
            voids,
            "give memcached more memory (-m), or the locks a server of their own",
        ));
    }
    findings
}

fn others(settings: &Statistics) -> Vec<Finding> {
    let mut findings = Vec::new();
    if matches!(settings.text("memory_file"), None | Some("(null)")) {
        let voids = "exclusion over a restart: the server forgets all locks, while their holders believe to have them";
        let advice = "let what a lock protects check fencing tokens, or use a store that keeps what it knows";
        findings.push(Finding::new("nothing is kept over a restart", voids, advice));
    }
    if settings.text("flush_enabled") != Some("no") {
        let voids = "exclusion, if anybody sends flush_all: the server forgets all locks";
        findings.push(Finding::new("flush_all is allowed", voids, "start memcached with -F"));
    }
    if settings.text("lru_crawler") == Some("no") || settings.text("dump_enabled") == Some("no") {
        let voids = "lists of locks: the server does not tell its keys";
        findings.push(Finding::new("keys cannot be listed", voids, "start memcached without -X and no_lru_crawler"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(general: &str, settings: &str) -> Vec<String> {
        let list = |text: &str| Statistics(text.split(", ").map(str::to_owned).collect());
        let (general, settings) = (list(general), list(settings));
        evictions(&general, &settings).into_iter().chain(others(&settings)).map(|finding| finding.setting).collect()
    }

    #[test]
    fn what_loses_locks_is_found() {
        let safe = "evictions off, memory_file /dev/shm/locks, flush_enabled no, lru_crawler yes, dump_enabled yes";
        assert_eq!(found("evictions 0, bytes 100, limit_maxbytes 1000", safe), Vec::<String>::new());
        let full = found("evictions 3, slab_reassign_evictions_nomem 4, bytes 900, limit_maxbytes 1000", safe);
        assert_eq!(full, ["7 items were evicted since the start", "0 of 0 MiB of memory are used"]);
        let as_it_comes = "evictions on, memory_file (null), flush_enabled yes, lru_crawler no, dump_enabled yes";
        assert_eq!(found("evictions 0", as_it_comes).len(), 4);
    }
}
