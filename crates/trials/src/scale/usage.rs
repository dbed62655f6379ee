//! What this process and its servers have used so far, as the system says.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::time::Duration;

use test_servers::status_of;

/// The unit of processor times in `/proc`, a hundredth of a second on Linux.
const TICK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Of all processes that this one started, and that those started, also of those that have ended.
    pub(crate) server_cpu: Duration,
    pub(crate) client_cpu: Duration,
    /// In memory now, in bytes; what several share is counted once.
    pub(crate) server_bytes: f64,
    pub(crate) client_bytes: f64,
    /// What was sent by TCP on this machine.
    pub(crate) segments: f64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let mut usage = Self {
            client_cpu: cpu(&stat(std::process::id()), 11..13),
            client_bytes: memory("self"),
            segments: segments(&fs::read_to_string("/proc/net/snmp").unwrap_or_default()),
            ..Self::default()
        };
        for id in descendants(std::process::id()) {
            usage.server_cpu += cpu(&stat(id), 11..15);
            usage.server_bytes += memory(&id.to_string());
        }
        usage
    }
}

/// All processes below this one.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut children = HashMap::<u32, Vec<u32>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(parent) = field(&stat(id), 1)
        {
            children.entry(parent as u32).or_default().push(id);
        }
    }
    let mut all = Vec::new();
    let mut next = vec![root];
    while let Some(id) = next.pop() {
        let its = children.remove(&id).unwrap_or_default();
        all.extend(&its);
        next.extend(its);
    }
    all
}

/// Of a process that has gone, nothing.
fn stat(id: u32) -> String {
    status_of(id).unwrap_or_default()
}

fn field(stat: &str, at: usize) -> Option<u64> {
    stat.split(' ').nth(at)?.parse().ok()
}

/// Its own times are the fields 11 and 12, and those of its children that ended are 13 and 14.
fn cpu(stat: &str, fields: Range<usize>) -> Duration {
    let ticks: u64 = fields.filter_map(|at| field(stat, at)).sum();
    TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
}

fn memory(id: &str) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
    let kilobytes = rollup.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}

/// `OutSegs` of the line of figures that follows the line of names.
fn segments(snmp: &str) -> f64 {
    let mut tcp = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (Some(names), Some(figures)) = (tcp.next(), tcp.next()) else { return 0.0 };
    let at = names.split(' ').position(|name| name == "OutSegs");
    at.and_then(|at| figures.split(' ').nth(at)?.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoMin InSegs OutSegs\nTcp: 200 7 9\nUdp: InDatagrams\nUdp: 3\n";
        assert!((segments(snmp) - 9.0).abs() < f64::EPSILON);
        let stat = "S 1 1 1 0 -1 4 1 2 3 4 10 20 30 40 20 0";
        assert_eq!([cpu(stat, 11..13), cpu(stat, 11..15)], [TICK * 30, TICK * 100]);
        let mut sleeps = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(descendants(std::process::id()).contains(&sleeps.id()));
        assert!(memory(&sleeps.id().to_string()) > 0.0);
        sleeps.kill().unwrap();
        sleeps.wait().unwrap();
    }
}
