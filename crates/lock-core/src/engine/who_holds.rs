//! Who holds a lock, asked once for all whose wait is over at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use crate::contract::{DistributedLock, Holder, LockName, Result};

type Answer = Result<Option<Holder>>;

/// Questions that are under way.
#[derive(Debug, Default)]
pub(crate) struct WhoHolds {
    asked: Mutex<HashMap<LockName, WeakShared<BoxFuture<'static, Answer>>>>,
}

impl WhoHolds {
    /// # Errors
    /// As the store says.
    pub(crate) async fn ask(&self, backend: &Arc<dyn DistributedLock>, name: &LockName) -> Answer {
        self.question(backend, name).await
    }

    fn question(&self, backend: &Arc<dyn DistributedLock>, name: &LockName) -> Shared<BoxFuture<'static, Answer>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(question) = asked.get(name).and_then(WeakShared::upgrade)
            && question.peek().is_none()
        {
            return question;
        }
        let (backend, of) = (Arc::clone(backend), name.clone());
        let question = async move { backend.holder(&of).await }.boxed().shared();
        // What nobody waits for any more is gone.
        asked.retain(|_, question| question.upgrade().is_some());
        asked.extend(question.downgrade().map(|weak| (name.clone(), weak)));
        question
    }
}
