//! ZooKeeper servers, one or several that form an ensemble.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use conformance_tests::torture::{self, Blow};
use tempfile::TempDir;

use crate::ServerClock;
use crate::links::Links;
use crate::ports::free_port;
use crate::process::{Disk, Process};
use crate::tortured::{Store, apart};

/// Debian's jars, of libzookeeper-java and what it needs, in `/usr/share/java`.
const JARS: [&str; 12] = [
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-nop",
    "netty-all",
    "netty-common",
    "netty-buffer",
    "netty-transport",
    "netty-handler",
    "netty-codec",
    "metrics-core",
    "snappy-java",
];

/// Half of what the shortest session lasts.
const TICK: Duration = Duration::from_millis(500);

/// Java servers that form one ensemble. Dropping it kills them and removes their files.
#[derive(Debug)]
pub struct ZookeeperServers {
    /// Before the folder, which they use until they are dropped.
    servers: Vec<Server>,
    folder: TempDir,
    options: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    /// By which they follow each other.
    links: Links,
}

#[derive(Debug)]
struct Server {
    port: u16,
    process: Process,
}

impl ZookeeperServers {
    /// One server: sessions from a second to an hour, and every command in four letters.
    pub fn start() -> Self {
        Self::start_with(1, &[])
    }

    /// So many servers, with more lines in their `zoo.cfg`, of which those that begin with `-D` are Java's instead.
    pub fn start_with(count: usize, options: &[&str]) -> Self {
        Self::start_in(Disk::Memory, count, options, |_| Vec::new())
    }

    /// One server that saves each write to the disk before it answers, for who measures.
    pub fn start_durable() -> Self {
        Self::start_in(Disk::Real, 1, &["forceSync=yes"], |_| Vec::new())
    }

    /// One server, and its clock.
    pub fn start_with_clock() -> (Self, ServerClock) {
        let mut clock = None;
        let servers =
            Self::start_in(Disk::Memory, 1, &[], |folder| clock.insert(ServerClock::new(folder)).environment().into());
        (servers, clock.expect("it has started"))
    }

    fn start_in(
        disk: Disk,
        count: usize,
        options: &[&str],
        mut environment: impl FnMut(&Path) -> Vec<(&'static str, PathBuf)>,
    ) -> Self {
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        // Another process may take a port between our finding it free and a server's taking it.
        for _ in 0..5 {
            let folder = watchdog::folder(disk);
            let ports: Vec<_> = (0..count).map(|_| [(); 3].map(|()| free_port())).collect();
            let quorum: Vec<_> = ports.iter().map(|[_, quorum, _]| *quorum).collect();
            let links = Links::between(&quorum);
            for number in 0..count {
                configure(folder.path(), &ports, &links, number, &options);
            }
            let environment = environment(folder.path());
            let spawn = |(number, &[port, ..]): (usize, &[u16; 3])| Server {
                port,
                process: spawn(folder.path(), number, &options, &environment),
            };
            let servers = ports.iter().enumerate().map(spawn).collect();
            let mut servers = Self { servers, folder, options: options.clone(), environment, links };
            if servers.wait() {
                return servers;
            }
        }
        panic!("ZooKeeper does not start (Debian's packages default-jdk-headless and libzookeeper-java)");
    }

    /// Its servers one by one, to be tortured.
    pub fn apart(self) -> Vec<Box<dyn torture::Server>> {
        apart(self)
    }

    /// Where each server listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| (Ipv4Addr::LOCALHOST, server.port).into()).collect()
    }

    /// The URL of all of them.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.addresses().iter().map(ToString::to_string).collect();
        format!("zookeeper://{}", hosts.join(","))
    }

    /// Which of them leads, counted from zero; alone, it is the first.
    pub fn leader(&self) -> Option<usize> {
        let leads = |server: &Server| matches!(mode(server.port).as_deref(), Some("leader" | "standalone"));
        self.servers.iter().position(leads)
    }

    /// The process of a server.
    pub fn process(&self, number: usize) -> u32 {
        self.servers[number].process.id()
    }

    /// What a server answers to a command in four letters.
    pub fn ask(&self, number: usize, command: &str) -> Option<String> {
        ask(self.servers[number].port, command)
    }

    /// From now on nothing goes between a follower and whoever leads, or between the leader and its followers; clients
    /// reach all of them. (They may still vote.)
    pub fn cut(&mut self, number: usize) {
        self.links.cut(number);
    }

    /// What was held goes on, except to and from others that are cut off.
    pub fn heal(&mut self, number: usize) {
        self.links.heal(number);
    }

    /// `kill -9`.
    pub fn kill(&mut self, number: usize) {
        self.servers[number].process.kill();
    }

    /// Starts a new process on the same port and files, without waiting until it serves.
    pub fn revive(&mut self, number: usize) {
        self.start_again(number);
    }

    /// Where a server keeps its data.
    pub fn data(&self, number: usize) -> PathBuf {
        home(self.folder.path(), number).join("version-2")
    }

    /// Stops a server where it is; connections stay open and nothing is answered.
    pub fn pause(&self, number: usize) {
        self.servers[number].process.pause();
    }

    /// Lets a paused server go on.
    pub fn resume(&self, number: usize) {
        self.servers[number].process.resume();
    }

    /// `kill -9`, and a new process on the same port and files; waits until the ensemble serves.
    pub fn restart(&mut self, number: usize) {
        self.kill(number);
        self.start_again(number);
        assert!(self.wait(), "ZooKeeper does not start again with {:?}", self.options);
    }

    /// Waits until every server whose process lives serves. No, if one of them ended.
    fn wait(&mut self) -> bool {
        // `ruok` is answered too early.
        self.servers.iter_mut().all(|server| server.process.is_ready(|| mode(server.port).is_some()))
    }
}

impl Store for ZookeeperServers {
    fn addresses(&self) -> Vec<SocketAddr> {
        ZookeeperServers::addresses(self)
    }

    fn process(&mut self, number: usize) -> &mut Process {
        &mut self.servers[number].process
    }

    fn start_again(&mut self, number: usize) {
        self.servers[number].process = spawn(self.folder.path(), number, &self.options, &self.environment);
    }

    fn suffers(&self, blow: Blow) -> bool {
        blow == Blow::FullDisk || (blow == Blow::CutServer && self.servers.len() > 1)
    }

    fn strike(&mut self, number: usize, _: Blow) {
        self.cut(number);
    }

    fn relieve(&mut self, number: usize, _: Blow) {
        self.heal(number);
    }
}

fn home(folder: &Path, number: usize) -> PathBuf {
    folder.join(number.to_string())
}

fn configure(folder: &Path, ports: &[[u16; 3]], links: &Links, number: usize, options: &[String]) {
    let home = home(folder, number);
    std::fs::create_dir(&home).expect("a folder");
    let (tick, port) = (TICK.as_millis(), ports[number][0]);
    let mut config = format!("tickTime={tick}\nmaxSessionTimeout=3600000\nclientPortAddress=127.0.0.1\n");
    config += &format!("dataDir={}\nclientPort={port}\nadmin.enableServer=false\n", home.display());
    config += "4lw.commands.whitelist=*\nmaxClientCnxns=0\nsyncLimit=8\n";
    // A proxy takes a follower's connection before the new leader listens, and the follower gives it up: so long the
    // leader waits for it before they vote again.
    config += "initLimit=4\n";
    // A process that is killed loses nothing by it, only a machine would.
    config += "forceSync=no\n";
    if ports.len() > 1 {
        for (peer, [_, quorum, election]) in ports.iter().enumerate() {
            let quorum = if peer == number { *quorum } else { links.port(number, peer) };
            // Writing to a string cannot fail.
            let _ = writeln!(config, "server.{}=127.0.0.1:{quorum}:{election}", peer + 1);
        }
    }
    for line in options.iter().filter(|option| !option.starts_with("-D")) {
        config += &format!("{line}\n");
    }
    std::fs::write(home.join("zoo.cfg"), config).expect("a file");
    std::fs::write(home.join("myid"), (number + 1).to_string()).expect("a file");
}

fn spawn(folder: &Path, number: usize, options: &[String], environment: &[(&str, PathBuf)]) -> Process {
    let mut java = java(&jars(&JARS));
    java.args(["-Xms32m", "-XX:TieredStopAtLevel=1"])
        .arg(format!("-Djava.io.tmpdir={}", folder.display()))
        .args(options.iter().filter(|option| option.starts_with("-D")));
    java.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain");
    java.arg(home(folder, number).join("zoo.cfg")).current_dir(folder);
    java.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).envs(environment.iter().cloned());
    Process::spawn(&mut java, "default-jdk-headless")
}

/// Java with Debian's Curator and what it needs, of libcurator-recipes-java: what follows is the program.
pub fn curator() -> Command {
    java(&curator_jars())
}

/// Where they are.
pub(crate) fn curator_jars() -> String {
    jars(&[&["curator-recipes", "curator-framework", "curator-client", "guava"], &JARS[..]].concat())
}

/// Where these of Debian's jars are.
fn jars(names: &[&str]) -> String {
    names.iter().map(|jar| format!("/usr/share/java/{jar}.jar")).collect::<Vec<_>>().join(":")
}

/// Java with these classes.
fn java(classes: &str) -> Command {
    let mut java = Command::new("java");
    // Without a file in the folder for temporary ones, by which other Java programs would find it.
    java.args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", classes]);
    java
}

fn ask(port: u16, command: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(command.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn mode(port: u16) -> Option<String> {
    let answer = ask(port, "srvr")?;
    answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::process::PATIENCE;

    #[test]
    fn it_starts_stops_and_starts_again() {
        let mut servers = ZookeeperServers::start();
        assert_eq!(servers.leader(), Some(0));
        servers.kill(0);
        assert_eq!(servers.leader(), None);
        servers.restart(0);
        assert_eq!(servers.leader(), Some(0));
    }

    #[test]
    fn three_go_on_without_their_leader() {
        let mut servers = ZookeeperServers::start_with(3, &[]);
        let first = servers.leader().unwrap();
        servers.kill(first);
        let late = Instant::now() + PATIENCE;
        while servers.leader().is_none_or(|leader| leader == first) {
            assert!(Instant::now() < late, "no new leader");
            std::thread::sleep(Duration::from_millis(20));
        }
        servers.restart(first);
        assert!((0..3).all(|number| mode(servers.servers[number].port).is_some()));
    }

    #[test]
    fn a_leader_that_is_cut_off_leads_no_more() {
        let mut servers = ZookeeperServers::start_with(3, &[]);
        let first = servers.leader().unwrap();
        servers.cut(first);
        let late = Instant::now() + PATIENCE;
        while servers.leader() == Some(first) {
            assert!(Instant::now() < late, "it still leads");
            std::thread::sleep(Duration::from_millis(20));
        }
        servers.heal(first);
        while servers.leader().is_none() {
            assert!(Instant::now() < late, "nobody leads");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
