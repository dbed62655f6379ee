//! The tasks of this client that want the same lock: only the first of them asks for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Line, OwnedMutexGuard};

#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Arc<Line<()>>>>);

/// Whose turn it is. It passes to the next when this is dropped.
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    key: &'t str,
    line: Arc<Line<()>>,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    fn lines(&self) -> MutexGuard<'_, HashMap<String, Arc<Line<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits behind those who came before.
    pub(super) async fn wait<'t>(&'t self, key: &'t str) -> Turn<'t> {
        let line = Arc::clone(self.lines().entry(key.to_owned()).or_default());
        // Made before the wait, so that who gives up takes the line away too if it is the last.
        let mut turn = Turn { turns: self, key, line, turn: None };
        turn.turn = Some(Arc::clone(&turn.line).lock_owned().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turn = None;
        let mut lines = self.turns.lines();
        // One in the map, and ours.
        if Arc::strong_count(&self.line) == 2 {
            lines.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_come_in_order_and_leave_nothing() {
        let turns = Turns::default();
        let first = turns.wait("x").await;
        let other = turns.wait("y").await;
        let mut second = std::pin::pin!(turns.wait("x"));
        let waiting =
            std::future::poll_fn(|context| std::task::Poll::Ready(second.as_mut().poll(context).is_pending()));
        assert!(waiting.await);
        drop(first);
        drop(second.await);
        drop(other);
        assert!(turns.lines().is_empty());
    }
}
