//! Settings of the servers that void a promise.

use std::time::Duration;

use lock_core::{Finding, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ZookeeperLock;
use crate::session::Session;

/// A lease that most would want to be possible: the default.
const USUAL: Duration = Duration::from_secs(30);

impl ZookeeperLock {
    pub(crate) async fn findings(&self) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let longest = Session::connect(self.settings.clone(), Duration::from_secs(86_400), None).await?.lasts;
        if longest < USUAL {
            found.push(finding(
                format!("maxSessionTimeout={longest:?}"),
                "leases as long as usual: longer ones than this are refused",
                "raise maxSessionTimeout, or ask for shorter leases",
            ));
        }
        let hosts = &self.settings.hosts;
        if hosts.len() < 3 {
            found.push(finding(
                format!("servers={}", hosts.len()),
                "availability: where one of one or two servers is down, no lock can be taken",
                "run three servers or five, and name all of them in the URL",
            ));
        }
        if self.settings.is_tls() {
            return Ok(found);
        }
        for host in hosts {
            match ask(host, "srvr", self.settings.timeout).await {
                Some(answer) if answer.contains("Mode: ") => {}
                Some(answer) if answer.contains("whitelist") => {}
                _ => found.push(finding(
                    format!("server={host}"),
                    "availability: it does not serve",
                    "look at this server, and at its log",
                )),
            }
            if let Some(answer) = ask(host, "conf", self.settings.timeout).await {
                found.extend(tick_finding(&answer, self.sessions.shortest));
            }
        }
        Ok(found)
    }
}

fn finding(setting: String, voids: &str, advice: &str) -> Finding {
    Finding::new(setting, voids.to_owned(), advice.to_owned())
}

/// What a server answers to a command in four letters.
async fn ask(host: &str, command: &str, timeout: Duration) -> Option<String> {
    let asking = async {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(command.as_bytes()).await?;
        let mut answer = String::new();
        // What goes on for longer is none of ZooKeeper's.
        stream.take(64 << 10).read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    tokio::time::timeout(timeout, asking).await.ok()?.ok()
}

/// We take half of the shortest session for a tick.
fn tick_finding(answer: &str, shortest: Duration) -> Option<Finding> {
    let tick = answer.lines().find_map(|line| line.strip_prefix("tickTime="))?.trim().parse().ok()?;
    (Duration::from_millis(tick) > shortest / 2).then(|| {
        finding(
            format!("tickTime={tick}, sessions from {shortest:?} on"),
            "exclusion, for the moment in which a server is cut off from the others: it may report a session late by half a tick",
            "leave minSessionTimeout at two ticks or above",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_that_is_longer_than_we_take_it_for_is_found() {
        let conf = "clientPort=2181\ntickTime=2000\nmaxClientCnxns=60\n";
        assert!(tick_finding(conf, Duration::from_secs(4)).is_none());
        assert!(tick_finding(conf, Duration::from_secs(2)).unwrap().setting.contains("2000"));
        assert!(tick_finding("conf is not executed because it is not in the whitelist.", USUAL).is_none());
    }
}
