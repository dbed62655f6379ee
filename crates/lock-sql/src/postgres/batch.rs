//! Requests of one client that wait at the same moment go to the server as one call, which is one commit.
//!
//! A few requests are sent at once, each alone. Whoever comes while these are under way waits; when one of them is
//! answered, all who wait are sent together. So a client with little to do loses no time, and one with much to do shares
//! round trips and commits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The most requests in one call.
const AT_ONCE: usize = 100;

/// Sends several requests, and answers each in its place.
type Ask<Q, A> = Box<dyn Fn(Vec<Q>) -> BoxFuture<'static, Vec<A>> + Send + Sync>;

/// The requests of one kind.
pub(super) struct Batches<Q, A> {
    state: Mutex<State<Q, A>>,
    /// How many calls are under way before others wait.
    most: usize,
    /// How long a request waits before it is sent alone: the calls under way may all be held up, each by another lock.
    patience: Duration,
    ask: Ask<Q, A>,
}

struct State<Q, A> {
    under_way: usize,
    waiting: Vec<Waiting<Q, A>>,
    /// How many have waited.
    number: u64,
}

struct Waiting<Q, A> {
    number: u64,
    /// Where it waits. Another runtime may end, or stand still, while this one goes on.
    runtime: Handle,
    request: Q,
    answer: oneshot::Sender<A>,
}

/// What became of a request.
pub(super) enum Sent<A> {
    /// It was sent with others.
    WithOthers(A),
    /// It is to be sent alone. Whoever does that keeps this until the answer.
    Alone(UnderWay),
    /// It was sent with others perhaps, and nobody knows what it was answered: that runtime has ended.
    Unanswered,
}

/// A call that is under way. Its end is the turn of those who wait.
pub(super) struct UnderWay(Option<Arc<dyn Next>>);

/// What happens at the end of a call.
trait Next: Send + Sync {
    fn next(self: Arc<Self>);
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(batches) = self.0.take() {
            batches.next();
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Batches<Q, A> {
    pub(super) fn new(most: usize, patience: Duration, ask: Ask<Q, A>) -> Arc<Self> {
        let state = Mutex::new(State { under_way: 0, waiting: Vec::new(), number: 0 });
        Arc::new(Self { state, most, patience, ask })
    }

    fn state(&self) -> MutexGuard<'_, State<Q, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a request sent with others, unless it is to be sent at once.
    pub(super) async fn send(self: &Arc<Self>, request: impl FnOnce() -> Q) -> Sent<A> {
        let (number, mut answered) = {
            let mut state = self.state();
            if state.under_way < self.most {
                state.under_way += 1;
                return Sent::Alone(UnderWay(Some(Arc::clone(self) as Arc<dyn Next>)));
            }
            let (answer, answered) = oneshot::channel();
            state.number += 1;
            let number = state.number;
            state.waiting.push(Waiting { number, runtime: Handle::current(), request: request(), answer });
            (number, answered)
        };
        let told = match tokio::time::timeout(self.patience, &mut answered).await {
            Ok(told) => told,
            Err(_) if self.withdraw(number) => return Sent::Alone(UnderWay(None)),
            Err(_) => answered.await,
        };
        told.map_or(Sent::Unanswered, Sent::WithOthers)
    }

    /// Takes a request back, unless it was sent.
    fn withdraw(&self, number: u64) -> bool {
        let mut state = self.state();
        let at = state.waiting.iter().position(|waiting| waiting.number == number);
        at.map(|at| state.waiting.remove(at)).is_some()
    }

    /// Those who wait on the runtime of the first of them; or, if nobody waits, one call less is under way.
    fn take(&self) -> Vec<Waiting<Q, A>> {
        let mut state = self.state();
        // Nothing was sent for those who gave up.
        state.waiting.retain(|waiting| !waiting.answer.is_closed());
        let runtime = state.waiting.first().map(|waiting| waiting.runtime.id());
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for waiting in std::mem::take(&mut state.waiting) {
            let goes = taken.len() < AT_ONCE && Some(waiting.runtime.id()) == runtime;
            if goes { taken.push(waiting) } else { left.push(waiting) }
        }
        state.waiting = left;
        if taken.is_empty() {
            state.under_way -= 1;
        }
        taken
    }
}

impl<Q: Send + 'static, A: Send + 'static> Next for Batches<Q, A> {
    fn next(self: Arc<Self>) {
        let taken = self.take();
        let Some(runtime) = taken.first().map(|waiting| waiting.runtime.clone()) else { return };
        let under_way = UnderWay(Some(Arc::clone(&self) as Arc<dyn Next>));
        // If that runtime has ended, so have they, and the turn goes on.
        runtime.spawn(async move {
            let (requests, answers): (Vec<_>, Vec<_>) =
                taken.into_iter().map(|waiting| (waiting.request, waiting.answer)).unzip();
            let answered = (self.ask)(requests).await;
            // First: who waits, waits for a round trip, and these only for our word.
            drop(under_way);
            for (answer, told) in answers.into_iter().zip(answered) {
                // Whoever gave up meanwhile undoes it.
                let _ = answer.send(told);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Answers each request with how many were sent with it.
    fn counting(patience: Duration) -> (Arc<Batches<usize, usize>>, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let ask = move |requests: Vec<usize>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { vec![requests.len(); requests.len()] }.boxed()
        };
        (Batches::new(2, patience, Box::new(ask)), calls)
    }

    async fn alone(batches: &Arc<Batches<usize, usize>>) -> UnderWay {
        match batches.send(|| 0).await {
            Sent::Alone(under_way) => under_way,
            _ => panic!("it was not sent alone"),
        }
    }

    #[tokio::test]
    async fn who_waits_is_sent_together() {
        let (batches, calls) = counting(LONG);
        let (one, other) = (alone(&batches).await, alone(&batches).await);
        let waiting = join_all((0..AT_ONCE + 10).map(|number| batches.send(move || number)));
        let (told, ()) = tokio::join!(waiting, async {
            tokio::task::yield_now().await;
            drop(one);
        });
        let with = |told: &Sent<usize>| if let Sent::WithOthers(with) = told { *with } else { 0 };
        assert_eq!((with(&told[0]), with(&told[AT_ONCE])), (AT_ONCE, 10));
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        drop(other);
        drop((alone(&batches).await, alone(&batches).await));
    }

    #[tokio::test]
    async fn who_gave_up_is_not_sent() {
        let (batches, calls) = counting(LONG);
        let under_way = (alone(&batches).await, alone(&batches).await);
        assert!(batches.send(|| 1).now_or_never().is_none());
        drop(under_way);
        tokio::task::yield_now().await;
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        drop((alone(&batches).await, alone(&batches).await));
    }

    #[tokio::test]
    async fn who_waited_for_long_is_sent_alone() {
        let (batches, calls) = counting(Duration::from_millis(1));
        let under_way = (alone(&batches).await, alone(&batches).await);
        assert!(matches!(batches.send(|| 1).await, Sent::Alone(UnderWay(None))));
        drop(under_way);
        tokio::task::yield_now().await;
        assert_eq!(calls.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn each_is_sent_by_its_own_runtime() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (batches, _) = counting(LONG);
        // It is not driven any more when its call ends, and nobody is on it.
        let under_way = runtime().block_on(async { (alone(&batches).await, alone(&batches).await) });
        let waiting = [1, 2].map(|request| {
            let batches = Arc::clone(&batches);
            std::thread::spawn(move || runtime().block_on(batches.send(|| request)))
        });
        while batches.state().waiting.len() < 2 {
            std::thread::yield_now();
        }
        drop(under_way);
        for waiting in waiting {
            assert!(matches!(waiting.join().unwrap(), Sent::WithOthers(1)));
        }
        drop(runtime().block_on(async { (alone(&batches).await, alone(&batches).await) }));
    }
}
