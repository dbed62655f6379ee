//! Who is told that something happened in a line: those who observe the lock. Each such line is one more watch of the
//! client's stream, over all keys of the line, and told of what is put, too.
//!
//! A watch begins with the present. So whoever observes is told when it begins, and looks; also when it begins anew over
//! another stream, however the one before ended.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{Stream, unfold};
use tokio::sync::{Notify, broadcast, watch};

use crate::follow::{Happened, News};
use crate::keys::Keys;

/// The numbers of these watches begin after this one, which no other watch reaches.
const FIRST: i64 = 1 << 40;

/// So many may be asked for and not be opened yet: see `watchlist`.
const UNANSWERED: usize = 500;

pub(crate) struct Changes {
    state: Mutex<State>,
    keys: Keys,
    /// There is something to be sent.
    pub(crate) bell: Notify,
}

#[derive(Default)]
struct State {
    /// By what all keys of the line begin with.
    lines: HashMap<String, Observed>,
    by_number: HashMap<i64, String>,
    last: i64,
    /// One watch over all keys of the prefix, which numbers them by itself: a proxy. Nothing is closed there.
    whole: bool,
    open: VecDeque<Opening>,
    /// So many have been asked for and not been opened.
    unanswered: usize,
    close: Vec<i64>,
    /// The server was asked to close these.
    closing: HashSet<i64>,
}

struct Observed {
    number: i64,
    /// So many observe it.
    observers: usize,
    /// Something happened.
    told: watch::Sender<()>,
    followed: Option<Followed>,
}

/// Of a line that is followed.
struct Followed {
    /// The key that says who has which permits, and the number of its watch.
    permits: String,
    number: i64,
    news: broadcast::Sender<News>,
}

impl Followed {
    fn tell(&self, news: News) {
        // It fails if nobody waits just now.
        let _ = self.news.send(news);
    }
}

/// A watch that is to be asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) number: i64,
    /// What all keys of a line begin with, or the one key.
    pub(crate) key: String,
    pub(crate) is_line: bool,
}

/// Somebody observes a line for as long as it has this.
pub(crate) struct Observer {
    changes: Arc<Changes>,
    line: String,
    told: watch::Receiver<()>,
}

impl Changes {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { state: Mutex::default(), keys, bell: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An item each time that something happened in this line. What happens before it was taken is one.
    pub(crate) fn of(self: &Arc<Self>, line: String) -> impl Stream<Item = ()> + Send + 'static {
        let observer = self.observe(line);
        unfold(observer, async |mut observer| observer.told.changed().await.is_ok().then_some(((), observer)))
    }

    fn observe(self: &Arc<Self>, line: String) -> Observer {
        let mut state = self.state();
        let told = match state.lines.get_mut(&line) {
            Some(observed) => {
                observed.observers += 1;
                observed.told.subscribe()
            }
            None => {
                let (told, number) = (watch::Sender::new(()), state.ask_for(&line, &line, true));
                let receiver = told.subscribe();
                state.lines.insert(line.clone(), Observed { number, observers: 1, told, followed: None });
                receiver
            }
        };
        drop(state);
        self.bell.notify_one();
        Observer { changes: Arc::clone(self), line, told }
    }

    /// The same, and `news` is told what happens in the line and to this key. One at a time follows a line.
    pub(crate) fn follow(self: &Arc<Self>, line: &str, permits: &str, news: broadcast::Sender<News>) -> Observer {
        let observer = self.observe(line.to_owned());
        let mut state = self.state();
        let number = if state.whole { 0 } else { state.ask_for(line, permits, false) };
        let followed = Followed { permits: permits.to_owned(), number, news };
        let before = state.lines.get_mut(line).and_then(|observed| observed.followed.replace(followed));
        before.into_iter().for_each(|before| state.leave(before.number));
        drop(state);
        self.bell.notify_one();
        observer
    }

    /// There is a new stream of watches, and nothing is watched over it yet. Is there one over all keys, by a proxy?
    pub(crate) fn begin(&self, whole: bool) {
        let mut state = self.state();
        state.whole = whole;
        state.open.clear();
        state.close.clear();
        state.by_number.clear();
        state.closing.clear();
        state.unanswered = 0;
        let mut lines = std::mem::take(&mut state.lines);
        for (line, observed) in &mut lines {
            observed.number = state.ask_for(line, line, true);
            // Of a proxy's watches nobody knows which is which.
            if let Some(followed) = observed.followed.as_mut().filter(|_| !whole) {
                followed.number = state.ask_for(line, &followed.permits, false);
            }
        }
        state.lines = lines;
    }

    /// What is to be asked for, and what is to be closed.
    pub(crate) fn todo(&self) -> (Vec<Opening>, Vec<i64>) {
        let mut guard = self.state();
        let state = &mut *guard;
        let count = state.open.len().min(UNANSWERED - state.unanswered);
        state.unanswered += count;
        let (open, close) = (state.open.drain(..count).collect(), std::mem::take(&mut state.close));
        state.closing.extend(&close);
        (open, close)
    }

    /// Does a watch of this number tell of a line alone, or of its permits?
    pub(crate) fn is_of_line(number: i64) -> bool {
        number > FIRST
    }

    /// The server tells of what this watch is about from now on.
    pub(crate) fn opened(&self, number: i64) {
        let mut state = self.state();
        if state.whole || Self::is_of_line(number) {
            state.unanswered = state.unanswered.saturating_sub(1);
        }
        match state.by_number.get(&number) {
            Some(line) => state.tell(line),
            None if state.whole => state.lines.keys().for_each(|line| state.tell(line)),
            None => {}
        }
    }

    /// The server has closed this watch. Was it asked to?
    pub(crate) fn closed(&self, number: i64) -> bool {
        self.state().closing.remove(&number)
    }

    /// A watch of this number told that.
    pub(crate) fn heard(&self, number: i64, happened: &Happened<'_>) {
        let state = self.state();
        if !(state.whole || Self::is_of_line(number)) {
            return;
        }
        let by_number = state.by_number.get(&number).and_then(|line| state.lines.get(line));
        if let Some(followed) = by_number.and_then(|observed| observed.followed.as_ref())
            && followed.number == number
        {
            return followed.tell(News::of_permits(happened));
        }
        let observed = self.keys.line_of(happened.key).and_then(|line| state.lines.get(line));
        let Some(observed) = observed else { return };
        observed.told.send_replace(());
        if let Some(followed) = &observed.followed {
            let news = if state.whole { Some(News::look()) } else { News::of_line(happened) };
            news.into_iter().for_each(|news| followed.tell(news));
        }
    }
}

impl State {
    /// A watch for the sake of this line, over all its keys or one other.
    fn ask_for(&mut self, line: &str, key: &str, is_line: bool) -> i64 {
        self.last += 1;
        let number = FIRST + self.last;
        self.by_number.insert(number, line.to_owned());
        self.open.push_back(Opening { number, key: key.to_owned(), is_line });
        number
    }

    /// Nobody needs this watch any more.
    fn leave(&mut self, number: i64) {
        let is_known = self.by_number.remove(&number).is_some();
        let to_open = self.open.len();
        self.open.retain(|open| open.number != number);
        if is_known && self.open.len() == to_open && !self.whole {
            self.close.push(number);
        }
    }

    /// Something may have happened in this line before it was watched.
    fn tell(&self, line: &str) {
        if let Some(observed) = self.lines.get(line) {
            observed.told.send_replace(());
            observed.followed.iter().for_each(|followed| followed.tell(News::look()));
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let mut guard = self.changes.state();
        let state = &mut *guard;
        let Some(observed) = state.lines.get_mut(&self.line) else { return };
        observed.observers -= 1;
        if observed.observers > 0 {
            return;
        }
        let numbers = [Some(observed.number), observed.followed.as_ref().map(|followed| followed.number)];
        state.lines.remove(&self.line);
        numbers.into_iter().flatten().for_each(|number| state.leave(number));
        drop(guard);
        self.changes.bell.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};

    use super::*;

    fn changes() -> Arc<Changes> {
        Arc::new(Changes::new(Keys::new("app").unwrap()))
    }

    fn deleted(key: &str) -> Happened<'_> {
        Happened { key, at: 7, put: None }
    }

    #[tokio::test]
    async fn a_line_is_watched_for_as_long_as_somebody_observes_it() {
        let changes = changes();
        changes.begin(false);
        let (mut one, two) = (changes.of("app/x/".to_owned()).boxed(), changes.of("app/x/".to_owned()).boxed());
        let open = changes.todo().0;
        assert_eq!((open.len(), open[0].key.as_str()), (1, "app/x/"));
        let number = open[0].number;
        assert!(Changes::is_of_line(number) && one.next().now_or_never().is_none());
        changes.opened(number);
        assert!(one.next().now_or_never().is_some() && one.next().now_or_never().is_none());
        for (watch, key, is_told) in [(number, "app/x/0", true), (number, "app/y/0", false), (5, "app/x/0", false)] {
            changes.heard(watch, &deleted(key));
            assert_eq!(one.next().now_or_never().is_some(), is_told, "{watch} {key}");
        }
        drop(two);
        assert!(changes.todo().1.is_empty());
        drop(one);
        assert_eq!(changes.todo().1, [number]);
        assert!(changes.closed(number) && !changes.closed(number));
    }

    #[tokio::test]
    async fn a_new_stream_tells_that_it_began() {
        let changes = changes();
        changes.begin(false);
        let mut observer = changes.of("app/x/".to_owned()).boxed();
        let before = changes.todo().0[0].number;
        for whole in [false, true] {
            changes.begin(whole);
            let after = changes.todo().0[0].number;
            assert!(after > before);
            // A proxy numbers it otherwise.
            changes.opened(if whole { 3 } else { after });
            assert!(observer.next().now_or_never().is_some(), "{whole}");
        }
        changes.heard(3, &deleted("app/x/1a~me"));
        assert!(observer.next().now_or_never().is_some());
        // What was not asked for yet is not closed, and a proxy is asked for nothing like that.
        drop(observer);
        assert!(changes.todo().1.is_empty());
        changes.begin(false);
        drop(changes.of("app/x/".to_owned()));
        let (open, close) = changes.todo();
        assert!(open.is_empty() && close.is_empty());
    }

    /// Whoever follows a line is told more, by one more watch, which ends with the other.
    #[tokio::test]
    async fn who_has_permits_is_watched_where_a_line_is_followed() {
        let changes = changes();
        changes.begin(false);
        let (news, mut told) = broadcast::channel(9);
        let observer = changes.follow("app/x/", "app/%permits/x", news.clone());
        let open = changes.todo().0;
        assert_eq!(
            open.iter().map(|open| (open.key.as_str(), open.is_line)).collect::<Vec<_>>(),
            [("app/x/", true), ("app/%permits/x", false)]
        );
        for open in &open {
            changes.opened(open.number);
            assert!(matches!(told.try_recv(), Ok(News::Look(_))));
        }
        changes.heard(open[0].number, &deleted("app/x/permit/1a"));
        assert!(matches!(told.try_recv(), Ok(News::Ended { key, .. }) if &*key == "app/x/permit/1a"));
        changes.heard(open[1].number, &deleted("app/%permits/x"));
        assert!(matches!(told.try_recv(), Ok(News::Look(_))) && told.try_recv().is_err());
        // Who follows it next takes its place, though somebody observes it still.
        let other = changes.of("app/x/".to_owned()).boxed();
        drop(observer);
        let observer = changes.follow("app/x/", "app/%permits/x", news);
        let (again, closed) = changes.todo();
        assert_eq!((again.len(), closed), (1, vec![open[1].number]));
        drop((observer, other));
        assert_eq!(changes.todo().1, [open[0].number, again[0].number]);
    }

    #[test]
    fn not_all_are_asked_for_before_the_first_is_opened() {
        let changes = changes();
        changes.begin(false);
        let _observers: Vec<_> = (0..UNANSWERED + 5).map(|line| changes.of(format!("app/{line}/"))).collect();
        let first = changes.todo().0;
        assert_eq!((first.len(), changes.todo().0.len()), (UNANSWERED, 0));
        first.iter().take(3).for_each(|open| changes.opened(open.number));
        // Another kind of watch.
        changes.opened(3);
        assert_eq!(changes.todo().0.len(), 3);
        changes.begin(false);
        assert_eq!(changes.todo().0.len(), UNANSWERED);
    }
}
