//! A request whose connection broke is made once more, over another.

use std::sync::{Arc, Mutex, PoisonError};

use lock_core::{Error, Result};

use crate::connection::{Client, Failed, Link};

/// What came before.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    /// Was it tried, and may have been done?
    tried: Option<bool>,
}

impl Retry {
    /// It failed: is it to be tried once more? Every verb first reads what is there, so that repeating it does no harm.
    ///
    /// # Errors
    /// What the verb answers, if not.
    pub(crate) fn after(&mut self, failed: Failed, client: &Client, link: &Arc<Link>) -> Result<()> {
        let Failed { error, again } = failed;
        let was_done = !error.is_refused();
        if again {
            client.leave(link);
        }
        match self.tried {
            None if again => {
                self.tried = Some(was_done);
                Ok(())
            }
            Some(true) => Err(error.after_something_was_done()),
            _ => Err(error),
        }
    }
}

/// Why a request was not answered that may have ended a hold.
#[derive(Debug, Default)]
pub(crate) struct Unheard(Mutex<Option<Error>>);

impl Unheard {
    /// Notes what such a request failed by.
    pub(crate) fn note<T>(&self, answer: Result<T, Failed>) -> Result<T, Failed> {
        if let Err(failed) = &answer
            && !failed.error.is_refused()
        {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(failed.error.clone());
        }
        answer
    }

    pub(crate) fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Client {
    /// Does this over a connection, and once more over another if that broke.
    pub(crate) async fn retrying<T, F>(&self, request: impl Fn(Arc<Link>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Failed>> + Send,
    {
        let mut retry = Retry::default();
        loop {
            let link = self.link()?;
            match request(Arc::clone(&link)).await {
                Ok(done) => return Ok(done),
                Err(failed) => retry.after(failed, self, &link)?,
            }
        }
    }
}

impl Failed {
    /// The same, of a request behind one that took effect.
    pub(crate) fn after_something_was_done(self) -> Self {
        let Self { error, again } = self;
        Self { error: Error::after_something_was_done(error), again }
    }
}
