//! A leader that publishes its address, and followers that find it, also after the leader was killed.
//!
//! Three nodes stand for election, each with the address at which it serves. Two followers observe who leads and call on
//! it. Then the leader is killed: when its lease is over, another is elected, and the followers find that one.
//!
//! Nodes and followers are processes of their own, and the store is a SQLite file.
//!
//! ```sh
//! cargo run -p oarlock --example leader_address
//! ```

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Lines, Read};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use oarlock::{FencingToken, Observed, blocking};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const NAME: &str = "examples/scheduler";
/// After so long without a word from the leader another is elected.
const LEASE: Duration = Duration::from_secs(2);
const NODES: usize = 3;
const FOLLOWERS: usize = 2;

/// What a process is, if it is not the one that starts the others: `node 1`, `follower 2`.
const PART: &str = "EXAMPLE_PART";
/// Where the store is.
const STORE: &str = "EXAMPLE_STORE";

/// Serves while it leads. It ends with its standard input.
#[tokio::main(flavor = "current_thread")]
async fn node(number: usize, store: &str) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let locks = oarlock::connect(store).await?;
    let election = locks.election(NAME).lease(LEASE);
    let (closed, input) = oneshot::channel::<()>();
    thread::spawn(|| wait_for_the_end(closed));
    tokio::select! {
        // Dropped at a loss, before another can be elected; then it stands again.
        served = election.run(address, async |leader| serve(&listener, number, leader.fencing_token()).await) => served??,
        _ = input => {}
    }
    // Dropping it resigned; the next one leads when that is done.
    let _ = locks.shutdown(LEASE).await;
    Ok(())
}

async fn serve(listener: &TcpListener, number: usize, token: FencingToken) -> Result<()> {
    loop {
        let (mut caller, _) = listener.accept().await?;
        caller.write_all(format!("node {number} leads with token {token}\n").as_bytes()).await?;
    }
}

fn wait_for_the_end(closed: oneshot::Sender<()>) {
    let _ = io::stdin().read_to_end(&mut Vec::new());
    drop(closed);
}

/// What the node at this address says.
fn call(address: &str) -> Result<String> {
    let mut answer = String::new();
    BufReader::new(TcpStream::connect(address)?).read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}

/// Calls on each leader that it sees.
fn follower(number: usize, store: &str) -> Result<()> {
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut observer = blocking::connect(store)?.observe(NAME)?;
    loop {
        match observer.next()? {
            Observed::Held(leader) => {
                let Some(address) = leader.value else { continue };
                match call(address.as_str()) {
                    Ok(answer) => println!("follower {number} found {address}: {answer}"),
                    // A leader that has just died is seen until its lease is over.
                    Err(error) => println!("follower {number} calls {address} in vain: {error}"),
                }
            }
            Observed::Free => println!("follower {number} sees nobody who leads"),
            Observed::Blind(error) => println!("follower {number} sees nothing: {error}"),
            _ => {}
        }
    }
}

/// Does the part of this process, if it has one.
pub(crate) fn part() -> Option<Result<()>> {
    let (part, store) = (env::var(PART).ok()?, env::var(STORE).ok()?);
    let (role, number) = part.split_once(' ')?;
    let number = number.parse().ok()?;
    Some(if role == "node" { node(number, &store) } else { follower(number, &store) })
}

/// The next line of a follower that tells of a leader.
fn found(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<()> {
    for line in lines {
        let line = line?;
        println!("{line}");
        if line.contains(" found ") {
            return Ok(());
        }
    }
    Err("a follower has gone".into())
}

/// Who leads and has answered, other than this node: its number.
fn leader(observer: &mut blocking::Observer, other_than: Option<usize>) -> Result<usize> {
    loop {
        let Observed::Held(leader) = observer.next()? else { continue };
        let Ok(answer) = call(leader.value.ok_or("the leader shows no address")?.as_str()) else { continue };
        let number = answer.split(' ').nth(1).ok_or("no number")?.parse()?;
        if Some(number) != other_than {
            return Ok(number);
        }
    }
}

/// `again` starts this program once more.
pub(crate) fn demo(again: impl Fn() -> io::Result<Command>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("locks.db").display());
    // Whatever happens here, they end with their standard input.
    let start = |part: String, output: Stdio| -> io::Result<Child> {
        again()?.env(PART, part).env(STORE, &store).stdin(Stdio::piped()).stdout(output).spawn()
    };
    let mut nodes = Vec::new();
    for number in 1..=NODES {
        nodes.push(start(format!("node {number}"), Stdio::null())?);
    }
    let mut observer = blocking::connect(&store)?.observe(NAME)?;
    let first = leader(&mut observer, None)?;
    println!("node {first} is elected");

    let (mut followers, mut outputs) = (Vec::new(), Vec::new());
    for number in 1..=FOLLOWERS {
        let mut follower = start(format!("follower {number}"), Stdio::piped())?;
        outputs.push(BufReader::new(follower.stdout.take().ok_or("no output")?).lines());
        followers.push(follower);
    }
    outputs.iter_mut().try_for_each(found)?;

    nodes[first - 1].kill()?;
    println!("node {first} is killed");
    let second = leader(&mut observer, Some(first))?;
    println!("node {second} is elected");
    outputs.iter_mut().try_for_each(found)?;

    for mut child in nodes.into_iter().chain(followers) {
        drop(child.stdin.take());
        child.wait()?;
    }
    println!("{FOLLOWERS} followers found the leader, and the next one after it was killed");
    Ok(())
}

fn main() -> Result<()> {
    match part() {
        Some(result) => result,
        None => demo(|| Ok(Command::new(env::current_exe()?))),
    }
}
