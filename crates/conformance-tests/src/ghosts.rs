//! What is shown wrongly: holders that are not shown, and ghosts that are left when all have ended.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use crate::foreign::is_asked;
use crate::history::{Event, Log, What};
use crate::ordeal::Ordeal;
use crate::torture::GRACE;
use crate::violation::Violation;
use crate::worker::{Answer, Order, Role, Worker};

/// Servers that were struck to the last may take so long to find each other again.
const RECOVERY: Duration = Duration::from_secs(60);

/// Has a new client look at the locks until nothing is left of them, or until it is too late for that; then that is
/// logged.
pub(crate) async fn look(names: Vec<String>, lease: Duration, url: String, log: &Log) -> io::Result<()> {
    let role = Role { url, lease_ms: lease.as_millis() as u64, workload: None, task: None };
    let late = Instant::now() + lease + RECOVERY;
    let mut client = loop {
        let mut client = Worker::spawn(&role, None)?;
        // That it is ready. If it could not connect, it died.
        match client.answer().await {
            Ok(_) => break client,
            Err(error) if Instant::now() >= late => return Err(error),
            Err(_) => tokio::time::sleep(lease / 20).await,
        }
    };
    let late = Instant::now() + lease + GRACE;
    for name in names {
        loop {
            let answer = client.ask(&Order::Inspect { name: name.clone() }).await?;
            if answer == (Answer::Status { token: None, waiters: 0 }) {
                break;
            }
            if Instant::now() < late {
                tokio::time::sleep(lease / 20).await;
                continue;
            }
            let Answer::Status { token, waiters } = answer else {
                return Err(io::Error::other(format!("nobody can say what is left of {name}: {answer:?}")));
            };
            log.log(0, What::Left { name, token, waiters });
            break;
        }
    }
    client.end(lease + GRACE).await.map(drop)
}

/// **L2**: of who has ended, nothing is left when its time is up.
pub(crate) fn ghosts(events: &[Event]) -> impl Iterator<Item = Violation> {
    events.iter().filter_map(|event| {
        let What::Left { name, token, waiters } = &event.what else { return None };
        let held = token.map_or("nobody holds it".to_owned(), |token| format!("token {token} holds it"));
        let what = format!("a ghost is left of {name}: {held} and {waiters} wait, long after all have ended");
        let mut violation = Violation::of_tokens("L2", what, token.as_slice());
        violation.show(name, events);
        Some(violation)
    })
}

/// **I1**: a client that holds a lock and looks at it is shown as a holder.
pub(crate) fn misled<'a>(events: &'a [Event], ordeals: &'a [Ordeal]) -> impl Iterator<Item = Violation> + 'a {
    events.iter().filter_map(|event| {
        let What::Misled { name, owner } = &event.what else { return None };
        if !is_asked("I1", &event.client) {
            return None;
        }
        let shown = if owner.is_empty() { "nobody" } else { owner };
        let what = format!("{} held {name}, looked at it, and was shown {shown}", event.client);
        let mut violation = Violation::of_tokens("I1", what, &[]);
        violation.beside(events.iter().filter(|its| its.client == event.client && its.op == event.op).cloned());
        violation.suffered(ordeals);
        Some(violation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, op: u64, what: What) -> Event {
        Event { at, client: "worker-0-0".into(), op, what }
    }

    #[test]
    fn who_holds_is_to_be_shown() {
        let misled = |client: &str, owner: &str| {
            let what = What::Misled { name: "x".into(), owner: owner.into() };
            let history = [Event { client: client.into(), ..event(1, 2, what) }];
            super::misled(&history, &[]).map(|violation| violation.what).collect::<Vec<_>>()
        };
        assert_eq!(misled("go-1-0", "a"), ["go-1-0 held x, looked at it, and was shown a"]);
        assert_eq!(misled("go-1-0", ""), ["go-1-0 held x, looked at it, and was shown nobody"]);
        assert_eq!(misled("kazoo-1-0", "a"), [] as [String; 0]);
    }

    #[test]
    fn a_ghost_is_shown_with_what_is_known_of_it() {
        let acquire = |at, op| {
            event(at, op, What::Acquire { name: "x".into(), mode: lock_core::Mode::Exclusive, lease: 5, watched: true })
        };
        let left = |token| event(99, 0, What::Left { name: "x".into(), token, waiters: 2 });
        let granted = |at, op, token| event(at, op, What::Granted { token, until: at + 5 });
        let history = [acquire(1, 1), granted(2, 1, 7), acquire(3, 2), granted(4, 2, 8), left(Some(8)), left(None)];
        let found: Vec<_> = ghosts(&history).collect();
        assert!(found.iter().all(|ghost| ghost.rule == "L2"));
        assert_eq!(found[0].events, history[2..4]);
        assert_eq!((found.len(), found[1].events.len()), (2, 0));
        assert_eq!(ghosts(&history[..4]).count(), 0);
    }
}
