//! What a session knows of the claims in it.

use std::sync::Arc;

use lock_core::{Claim, Instant, LockName, Mode, OwnerId, StoreToken};
use tokio::sync::Notify;

use crate::session::{Life, Session};

/// What became of a claim so far.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) lock: LockName,
    pub(crate) mode: Mode,
    /// The path of its node; `None` if it is not known whether there is one.
    pub(crate) node: Option<String>,
    /// The paths of the others, if it has several permits.
    pub(crate) more: Vec<String>,
    /// Permits were asked for whose nodes have other names.
    pub(crate) taking: bool,
    /// The path of the node that it waits for.
    pub(crate) predecessor: Option<String>,
    /// Wakes it to look, should the event be lost.
    pub(crate) look: Arc<Notify>,
    pub(crate) hold: Option<Hold>,
    /// A watch on its node is set, or being set.
    pub(crate) watched: bool,
    /// It is being released.
    pub(crate) ending: bool,
    /// How many calls attend to it now.
    attended: u32,
    /// When the last of them left it.
    left: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) token: StoreToken,
    pub(crate) since: Instant,
    /// When its lease is over, unless it is renewed.
    pub(crate) ends: Instant,
    /// Did it stand in line, and alone? Then others may stand behind it that saw who was before it.
    pub(crate) waited: bool,
}

/// What is lost of a hold of which a node is gone.
pub(crate) enum Lost {
    All,
    /// Other permits of it are there still.
    Some,
}

impl Claimed {
    /// The paths of all its nodes that are known.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.node.iter().chain(&self.more)
    }

    /// Since when nobody sees to it that it ends. A hold is in order until its lease is over.
    pub(crate) fn is_left_since(&self) -> Option<Instant> {
        match self.hold {
            Some(hold) if !self.ending => Some(hold.ends),
            _ => (self.attended == 0).then_some(self.left),
        }
    }

    /// The upkeep ends it.
    pub(crate) fn end_now(&mut self, now: Instant) {
        self.ending = true;
        self.left = now;
    }
}

/// A call attends to a claim: to take it, or to release it.
pub(crate) struct Attending<'a> {
    session: &'a Session,
    owner: &'a OwnerId,
}

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        let now = self.session.now();
        self.session.update(self.owner, |claimed| {
            claimed.attended = claimed.attended.saturating_sub(1);
            claimed.left = now;
        });
    }
}

impl Session {
    /// Notes a claim before anything of it is sent. No, if the session is over.
    pub(crate) fn begin(&self, claim: &Claim) -> bool {
        let claimed = Claimed {
            lock: claim.name.clone(),
            mode: claim.mode,
            node: None,
            more: Vec::new(),
            taking: false,
            predecessor: None,
            look: Arc::default(),
            hold: None,
            watched: false,
            ending: false,
            attended: 0,
            left: self.now(),
        };
        let mut state = self.state();
        // Asked under the same lock under which its end is noted.
        let alive = self.life() == Life::Alive;
        if alive {
            state.claims.insert(claim.owner.clone(), claimed);
            if std::mem::take(&mut state.idle) {
                self.wake.notify_one();
            }
        }
        alive
    }

    /// While the answer is kept, the upkeep leaves this claim alone.
    pub(crate) fn attend<'a>(&'a self, owner: &'a OwnerId) -> Attending<'a> {
        self.update(owner, |claimed| claimed.attended += 1);
        Attending { session: self, owner }
    }

    pub(crate) fn forget(&self, owner: &OwnerId) -> Option<Claimed> {
        self.state().claims.remove(owner)
    }

    /// A node of a hold is gone. No, if it was given back, or that is known already. Where it had others, they are to
    /// be deleted.
    pub(crate) fn lose(&self, owner: &OwnerId, node: &str) -> Option<Lost> {
        let now = self.now();
        let mut state = self.state();
        let claimed = state.claims.get_mut(owner).filter(|claimed| claimed.nodes().any(|own| own == node))?;
        if claimed.ending {
            return None;
        }
        if claimed.more.is_empty() {
            state.claims.remove(owner);
            return Some(Lost::All);
        }
        claimed.end_now(now);
        Some(Lost::Some)
    }

    pub(crate) fn claimed(&self, owner: &OwnerId) -> Option<Claimed> {
        self.state().claims.get(owner).cloned()
    }

    /// Changes what is known of a claim, if it is still known at all.
    pub(crate) fn update(&self, owner: &OwnerId, change: impl FnOnce(&mut Claimed)) {
        if let Some(claimed) = self.state().claims.get_mut(owner) {
            change(claimed);
        }
    }
}
