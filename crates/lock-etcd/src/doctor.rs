//! Settings of the cluster that void a promise, and versions of etcd with known bugs about leases.

use std::collections::BTreeMap;

use etcd_client::KeyValue;
use lock_core::{Finding, LockName, Result};

use crate::Shared;
use crate::error::{broken, no_answer};
use crate::keys::is_a_waiters;
use crate::requests::text;
use crate::standing::Standing;
use crate::watch::{deletions, is_by_proxy};
use crate::watchlist::FIRST;

/// A bug, and the first versions without it, one of each line that was mended.
struct Bug {
    mended: &'static [(u32, u32, u32)],
    voids: &'static str,
}

const BUGS: [Bug; 3] = [
    Bug {
        mended: &[(3, 4, 31), (3, 5, 13)],
        voids: "exclusion while a leader's disk stalls: it prolongs leases that are over, and later ends some that are not",
    },
    Bug {
        mended: &[(3, 4, 38), (3, 5, 23), (3, 6, 5)],
        voids: "that a lease that was revoked is not prolonged: a keep-alive may be answered after it",
    },
    Bug {
        mended: &[(3, 4, 42), (3, 5, 28), (3, 6, 9)],
        voids: "that what is read is not old: after a pause of its process, a member may answer from before",
    },
];

impl Shared {
    pub(crate) async fn findings(&self) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        for endpoint in &self.connection.endpoints {
            match self.of_member(endpoint).await {
                Ok(findings) => found.extend(findings),
                Err(error) => found.push(Finding::new(
                    format!("the member {endpoint} does not answer"),
                    "that the cluster survives the loss of another one".to_owned(),
                    format!("look whether it runs ({error})"),
                )),
            }
        }
        if self.connection.endpoints.len() == 1 {
            found.push(Finding::new(
                "one member is named".to_owned(),
                "that locks can be had while it is down".to_owned(),
                "name all members of the cluster in the URL; three survive the loss of one".to_owned(),
            ));
        }
        found.extend(self.in_lines(self.lines().await?.0));
        Ok(found)
    }

    async fn of_member(&self, endpoint: &str) -> Result<Vec<Finding>> {
        let mut client = self.connection.only(endpoint).await?;
        let asking = async {
            let status = client.status().await?;
            let mut stream = client.watch(self.keys.tokens(), Some(deletions(FIRST))).await?;
            Ok::<_, etcd_client::Error>((status, stream.message().await?))
        };
        let answers = tokio::time::timeout(self.connection.timeout, asking).await;
        let (status, created) =
            answers.map_err(|_| no_answer(endpoint))?.map_err(|error| broken(endpoint).with_source(error))?;
        let mut found = of_version(endpoint, status.version());
        if created.is_some_and(|created| is_by_proxy(&created)) {
            found.push(Finding::new(
                format!("{endpoint} is etcd's grpc-proxy"),
                "leases to their last second, and that a release is told to those alone who come next: each is told to \
                 every client"
                    .to_owned(),
                "name the members of the cluster in the URL".to_owned(),
            ));
        }
        Ok(found)
    }

    /// Keys in lines that no lock puts there: whoever is behind one waits for its end.
    fn in_lines(&self, lines: BTreeMap<LockName, Vec<KeyValue>>) -> Vec<Finding> {
        let finding = |(name, key): (LockName, KeyValue)| {
            let shown = text(key.key());
            let rest = self.keys.parse(&shown).map_or("", |(_, rest)| rest);
            if key.lease() == 0 {
                return Some(Finding::new(
                    format!("the key {shown:?} stands in line for a lock, without a lease"),
                    "that the lock can be had: whoever waits behind it is refused, and other programs wait for ever"
                        .to_owned(),
                    "remove it, with etcdctl del, if nobody needs it".to_owned(),
                ));
            }
            // What was kept is on a lease of its own.
            let is_kept = Standing::of(rest, &key, false).owner.before_it_kept().is_some();
            (!is_kept && !is_a_waiters(rest, key.lease())).then(|| {
                Finding::new(
                    format!("the key {shown:?} stands in line for the lock {name}, and is not named by its lease"),
                    "that all in this line take the same for the lock: no client of ours and no `concurrency.Mutex` puts \
                     such a key"
                        .to_owned(),
                    "look what put it, and give that another prefix or another name".to_owned(),
                )
            })
        };
        let keys = lines.into_iter().flat_map(|(name, keys)| keys.into_iter().map(move |key| (name.clone(), key)));
        keys.filter_map(finding).collect()
    }
}

/// What is known of this version.
pub(crate) fn of_version(endpoint: &str, version: &str) -> Vec<Finding> {
    let Some(number) = parse(version) else { return Vec::new() };
    let bugs = BUGS.iter().filter(|bug| has(number, bug));
    let finding = |bug: &Bug| {
        let enough: Vec<_> =
            bug.mended.iter().map(|(major, minor, patch)| format!("{major}.{minor}.{patch}")).collect();
        Finding::new(
            format!("{endpoint} runs etcd {version}"),
            bug.voids.to_owned(),
            format!("run {} or later; until then let fencing tokens decide", enough.join(", ")),
        )
    };
    bugs.map(finding).collect()
}

/// A line newer than those that were mended never had it.
fn has(number: (u32, u32, u32), bug: &Bug) -> bool {
    let (major, minor, _) = number;
    match bug.mended.iter().find(|mended| (mended.0, mended.1) == (major, minor)) {
        Some(mended) => number < *mended,
        None => bug.mended.iter().all(|mended| number < *mended),
    }
}

fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split(['.', '-']).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_known_by_their_bugs() {
        let bugs = |version: &str| of_version("h", version).len();
        let cases =
            [("3.3.25", 3), ("3.4.23", 3), ("3.4.31", 2), ("3.5.1", 3), ("3.5.16", 2), ("3.5.27", 1), ("3.6.4", 2)];
        for (version, known) in cases {
            assert_eq!(bugs(version), known, "{version}");
        }
        for good in ["3.4.42", "3.5.30", "3.6.9", "3.7.0", "3.7.0-rc.1", "4.0.0", "odd"] {
            assert_eq!(bugs(good), 0, "{good}");
        }
    }
}
