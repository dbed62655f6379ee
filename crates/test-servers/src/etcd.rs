//! An etcd cluster of one or more members.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use conformance_tests::torture::{self, Blow};
use tempfile::TempDir;

use crate::Proxy;
use crate::ports::free_port;
use crate::process::{Disk, PATIENCE, Process, on_free_port};
use crate::tortured::{Store, apart};

/// The `etcd` processes of one cluster. Dropping it kills them and removes their files.
#[derive(Debug)]
pub struct EtcdCluster {
    /// Before the folder, which they use until they are dropped.
    members: Vec<Member>,
    folder: TempDir,
    scheme: &'static str,
    arguments: Vec<String>,
}

#[derive(Debug)]
struct Member {
    ports: Ports,
    /// In front of the port for its peers.
    proxy: Proxy,
    process: Process,
}

/// etcd's own proxy, `etcd grpc-proxy`, in front of a cluster. Dropping it kills it.
#[derive(Debug)]
pub struct GrpcProxy {
    _process: Process,
    port: u16,
}

impl GrpcProxy {
    /// In front of this cluster.
    pub fn start(cluster: &EtcdCluster) -> Self {
        let (port, process) = on_free_port("etcd grpc-proxy", |port| {
            let address = format!("127.0.0.1:{port}");
            let mut etcd = Command::new("etcd");
            etcd.args(["grpc-proxy", "start", "--endpoints", &cluster.hosts()])
                .args(["--listen-addr", &address, "--advertise-client-url", &address, "--data-dir"])
                .arg(cluster.folder.path().join(format!("proxy-{port}")))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut process = Process::spawn(&mut etcd, "etcd-server");
            process.is_ready(|| get(port, "/health").is_ok_and(|answer| answer.contains("true"))).then_some(process)
        });
        Self { _process: process, port }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }
}

/// Where a member listens.
#[derive(Clone, Copy, Debug)]
struct Ports {
    clients: u16,
    peers: u16,
    /// Where the peers find it.
    advertised: u16,
}

impl EtcdCluster {
    /// A cluster of so many members. Their files last over a kill, though not over the host's end.
    pub fn start(members: usize) -> Self {
        Self::start_with(members, &[])
    }

    /// A cluster whose members have more arguments, such as `--quota-backend-bytes 2000000`.
    pub fn start_with(members: usize, arguments: &[&str]) -> Self {
        Self::start_at(Disk::Memory, "http", members, arguments)
    }

    /// One member that saves each write to the disk before it answers, for who measures.
    pub fn start_durable() -> Self {
        Self::start_at(Disk::Real, "http", 1, &[])
    }

    /// One member that speaks TLS, by arguments such as `--cert-file` and `--key-file`. It counts as started when it
    /// accepts connections.
    pub fn start_with_tls(arguments: &[&str]) -> Self {
        Self::start_at(Disk::Memory, "https", 1, arguments)
    }

    fn start_at(disk: Disk, scheme: &'static str, members: usize, arguments: &[&str]) -> Self {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        // Another process may take a port between our finding it free and the member's taking it.
        for _ in 0..20 {
            let folder = watchdog::folder(disk);
            let place = |_| {
                let (clients, peers) = (free_port(), free_port());
                let proxy = Proxy::new((Ipv4Addr::LOCALHOST, peers).into());
                (Ports { clients, peers, advertised: proxy.address().port() }, proxy)
            };
            let (ports, proxies): (Vec<_>, Vec<_>) = (0..members).map(place).unzip();
            let start = |(number, proxy)| {
                let process = spawn(&folder, scheme, &ports, number, &arguments);
                Member { ports: ports[number], proxy, process }
            };
            let members = proxies.into_iter().enumerate().map(start).collect();
            let mut cluster = Self { members, folder, scheme, arguments: arguments.clone() };
            if (0..cluster.members.len()).all(|member| cluster.is_up(member)) {
                return cluster;
            }
        }
        panic!("etcd does not start");
    }

    /// Its members one by one, to be tortured.
    pub fn apart(self) -> Vec<Box<dyn torture::Server>> {
        apart(self)
    }

    /// Where the members listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| (Ipv4Addr::LOCALHOST, member.ports.clients).into()).collect()
    }

    /// The members as they are named in a URL: `host:port,host:port`.
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> = self.addresses().iter().map(ToString::to_string).collect();
        hosts.join(",")
    }

    /// The URL of the cluster.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.hosts())
    }

    /// The member that leads.
    pub fn leader(&self) -> usize {
        let late = Instant::now() + PATIENCE;
        while Instant::now() < late {
            for (number, member) in self.members.iter().enumerate() {
                let metrics = get(member.ports.clients, "/metrics").unwrap_or_default();
                if metrics.lines().any(|line| line == "etcd_server_is_leader 1") {
                    return number;
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no member leads");
    }

    /// `kill -9` of a member.
    pub fn kill(&mut self, member: usize) {
        self.members[member].process.kill();
    }

    /// Stops a member where it is; connections stay open and nothing is answered.
    pub fn pause(&self, member: usize) {
        self.members[member].process.pause();
    }

    /// Lets a paused member go on.
    pub fn resume(&self, member: usize) {
        self.members[member].process.resume();
    }

    /// From now on the other members do not hear this one, and it gets no answers from them; what they tell it of
    /// themselves arrives. Its clients reach it.
    pub fn cut(&self, member: usize) {
        self.members[member].proxy.hold();
    }

    /// What was held goes on.
    pub fn heal(&self, member: usize) {
        self.members[member].proxy.forward();
    }

    /// Drops all that is kept of the past, and answers whether that was done: it takes most of the members.
    ///
    /// # Panics
    /// If `etcdctl` is not installed.
    pub fn compact(&self) -> bool {
        let ask = |arguments: &[&str]| {
            let asked = self.etcdctl(arguments).args(["--command-timeout", "2s"]).output();
            asked.expect("install Debian's package etcd-client")
        };
        let answer = ask(&["get", "x", "--write-out", "fields"]).stdout;
        let answer = String::from_utf8_lossy(&answer);
        let revision = answer.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
        revision.is_some_and(|revision| ask(&["compact", revision]).status.success())
    }

    /// A member tidies its file, and answers nobody meanwhile; answers whether that was done.
    ///
    /// # Panics
    /// If `etcdctl` is not installed.
    pub fn defragment(&self, member: usize) -> bool {
        let alone = self.addresses()[member].to_string();
        let asked = etcdctl(&alone, &["defrag", "--command-timeout", "2s"]).output();
        asked.expect("install Debian's package etcd-client").status.success()
    }

    /// `kill -9` of a member, and a new process on the same ports and files.
    pub fn restart(&mut self, member: usize) {
        self.kill(member);
        self.start_again(member);
        assert!(self.is_up(member), "etcd does not start again");
    }

    /// All members are killed, and an empty cluster is started at their places.
    pub fn replace(&mut self) {
        for member in 0..self.members.len() {
            self.kill(member);
            std::fs::remove_dir_all(self.folder.path().join(member.to_string())).expect("our files");
        }
        for member in 0..self.members.len() {
            self.start_again(member);
        }
        assert!((0..self.members.len()).all(|member| self.is_up(member)), "etcd does not start again");
    }

    /// How many messages of clients the members got, requests and those of streams alike, whose method has one of these
    /// names; without names, all.
    pub fn requests(&self, methods: &[&str]) -> u64 {
        self.count("grpc_server_msg_received_total", methods)
    }

    /// How many calls of these methods began: of a stream, one, however many messages it carries.
    ///
    /// # Panics
    /// If a member does not tell.
    pub fn calls(&self, methods: &[&str]) -> u64 {
        self.count("grpc_server_started_total", methods)
    }

    /// How many messages the members have sent to clients: answers, and what watches tell.
    pub fn messages_sent(&self) -> u64 {
        self.count("grpc_server_msg_sent_total", &[])
    }

    fn count(&self, metric: &str, methods: &[&str]) -> u64 {
        let wanted = |line: &&str| {
            let is_one = |method: &&str| line.contains(&format!("grpc_method=\"{method}\""));
            line.starts_with(metric) && (methods.is_empty() || methods.iter().any(is_one))
        };
        let count = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
        let of_member = |member: &Member| {
            let metrics = get(member.ports.clients, "/metrics").expect("the member runs");
            metrics.lines().filter(wanted).filter_map(count).sum::<f64>() as u64
        };
        self.members.iter().map(of_member).sum()
    }

    /// The process id of a member.
    pub fn pid(&self, member: usize) -> u32 {
        self.members[member].process.id()
    }

    /// `etcdctl` with these arguments, to be run against all members.
    pub fn etcdctl(&self, arguments: &[&str]) -> Command {
        etcdctl(&self.hosts(), arguments)
    }

    /// Does the member answer a request, and does it live? A port that another server has answers too.
    fn is_up(&mut self, member: usize) -> bool {
        let Member { ports: Ports { clients, .. }, process, .. } = &mut self.members[member];
        let tls = self.scheme == "https";
        process.is_ready(|| get(*clients, "/health").is_ok_and(|answer| tls || answer.contains(r#""health":"true""#)))
    }
}

fn etcdctl(hosts: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", hosts]).args(arguments).stdin(Stdio::null());
    command
}

impl Store for EtcdCluster {
    fn addresses(&self) -> Vec<SocketAddr> {
        EtcdCluster::addresses(self)
    }

    fn process(&mut self, number: usize) -> &mut Process {
        &mut self.members[number].process
    }

    fn start_again(&mut self, number: usize) {
        let ports: Vec<_> = self.members.iter().map(|member| member.ports).collect();
        self.members[number].process = spawn(&self.folder, self.scheme, &ports, number, &self.arguments);
    }

    fn suffers(&self, blow: Blow) -> bool {
        blow != Blow::CutServer || self.members.len() > 1
    }

    fn strike(&mut self, number: usize, blow: Blow) {
        if blow == Blow::CutServer {
            self.cut(number);
        } else {
            // Not while too few members run.
            self.compact();
            self.defragment(number);
        }
    }

    fn relieve(&mut self, number: usize, blow: Blow) {
        if blow == Blow::CutServer {
            self.heal(number);
        }
    }
}

fn spawn(folder: &TempDir, scheme: &str, ports: &[Ports], number: usize, arguments: &[String]) -> Process {
    let Ports { clients, peers, advertised } = ports[number];
    let clients = format!("{scheme}://127.0.0.1:{clients}");
    let peer = |port: u16| format!("http://127.0.0.1:{port}");
    let all = ports.iter().enumerate();
    let all: Vec<_> = all.map(|(number, ports)| format!("{number}={}", peer(ports.advertised))).collect();
    let mut etcd = Command::new("etcd");
    etcd.args(["--name", &number.to_string(), "--data-dir"])
        .arg(folder.path().join(number.to_string()))
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peer(peers), "--initial-advertise-peer-urls", &peer(advertised)])
        .args(["--initial-cluster", &all.join(","), "--logger", "zap"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::spawn(&mut etcd, "etcd-server")
}

/// What an HTTP server at this port answers.
fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_starts_stops_and_starts_again() {
        let mut cluster = EtcdCluster::start(1);
        let put = cluster.etcdctl(&["put", "a", "b"]).output().expect("etcdctl is installed");
        assert!(put.status.success(), "{put:?}");
        let first = cluster.pid(0);
        cluster.restart(0);
        assert_ne!(cluster.pid(0), first);
        let kept = cluster.etcdctl(&["get", "a", "--print-value-only"]).output().unwrap().stdout;
        assert_eq!(kept, b"b\n");
        cluster.replace();
        assert_eq!(cluster.etcdctl(&["get", "a"]).output().unwrap().stdout, b"");
    }

    #[test]
    fn of_three_members_another_leads_when_the_leader_is_dead() {
        let mut cluster = EtcdCluster::start(3);
        let first = cluster.leader();
        cluster.kill(first);
        assert_ne!(cluster.leader(), first);
        cluster.restart(first);
    }

    #[test]
    fn of_three_members_another_leads_when_nobody_hears_the_leader() {
        let cluster = EtcdCluster::start(3);
        let first = cluster.leader();
        cluster.cut(first);
        let late = Instant::now() + PATIENCE;
        while cluster.leader() == first {
            assert!(Instant::now() < late, "it still leads");
            std::thread::sleep(Duration::from_millis(20));
        }
        cluster.heal(first);
        assert!(cluster.etcdctl(&["endpoint", "health"]).output().unwrap().status.success());
    }

    #[test]
    fn what_was_compacted_is_gone() {
        let cluster = EtcdCluster::start(1);
        cluster.etcdctl(&["put", "a", "b"]).output().unwrap();
        let first = || cluster.etcdctl(&["get", "a", "--rev", "1"]).output().unwrap();
        assert!(first().status.success());
        assert!(cluster.compact());
        assert!(cluster.defragment(0));
        assert!(String::from_utf8_lossy(&first().stderr).contains("compacted"));
    }
}
