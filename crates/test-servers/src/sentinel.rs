//! Sentinels.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::RedisServer;
use crate::process::{Disk, Process, on_free_port};
use crate::redis::{PACKAGE, answers, ask, wait_for};

/// Three Redis Sentinels that watch over a primary, which they call `main`. Dropping it kills them.
#[derive(Debug)]
pub struct Sentinels {
    /// Before their folder.
    sentinels: Vec<(u16, Process)>,
    _folder: TempDir,
}

impl Sentinels {
    /// Starts them, and waits until they know each other, the primary, and so many replicas.
    pub fn start(primary: &RedisServer, replicas: usize) -> Self {
        let folder = watchdog::folder(Disk::Memory);
        let sentinels = (0..3).map(|number| start(&folder.path().join(number.to_string()), primary)).collect();
        let this = Self { sentinels, _folder: folder };
        wait_for("the sentinels know each other and the replicas", || {
            this.sentinels.iter().all(|(port, _)| {
                let all = ask(*port, "SENTINEL CKQUORUM main").is_some_and(|answer| answer.contains("OK 3 usable"));
                let known = ask(*port, "SENTINEL REPLICAS main").unwrap_or_default();
                all && known.matches("runid\r\n$40").count() == replicas
            })
        });
        this
    }

    /// Where they listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|(port, _)| (Ipv4Addr::LOCALHOST, *port).into()).collect()
    }

    /// The URL of the locks on the primary that they name.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.addresses().iter().map(ToString::to_string).collect();
        format!("redis+sentinel://{}/main", addresses.join(","))
    }

    /// `kill -9` for the first of them.
    pub fn kill_one(&mut self) {
        self.sentinels[0].1.kill();
    }
}

fn start(folder: &Path, primary: &RedisServer) -> (u16, Process) {
    std::fs::create_dir(folder).expect("a folder");
    let config = folder.join("sentinel.conf");
    on_free_port("a sentinel", |port| {
        let of_primary = primary.address().port();
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {of_primary} 2\n\
             sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n",
            folder.display()
        );
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new("redis-server");
        command.arg(&config).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Process::spawn(&mut command, PACKAGE);
        answers(&mut process, port).then_some(process)
    })
}
