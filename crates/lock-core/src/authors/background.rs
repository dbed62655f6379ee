//! The task beside a client's requests.

use std::future::Future;

use tokio::task::JoinHandle;

/// A task that a client has beside its requests, one at a time. It ends with this.
#[derive(Debug, Default)]
pub struct Background(Option<JoinHandle<()>>);

impl Background {
    /// Does it run? One whose runtime was shut down does not.
    pub fn runs(&self) -> bool {
        self.0.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Starts this task instead of the one before. It must be called within a tokio runtime: on it the task runs, and
    /// with it it ends.
    pub fn start(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.stop();
        self.0 = Some(tokio::spawn(task));
    }

    /// Ends it, where it next waits for something.
    pub fn stop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn it_runs_until_it_is_stopped_or_its_runtime_is_gone() {
        let mut task = Background::default();
        for _ in 0..2 {
            assert!(!task.runs());
            let runtime = Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { task.start(std::future::pending()) });
            assert!(task.runs());
        }
        task.stop();
        assert!(!task.runs());
    }
}
