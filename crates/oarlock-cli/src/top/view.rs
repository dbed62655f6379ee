//! What the screen shows: pure, so that it can be tested without one.

use oarlock::{Holder, LockName, LockStatus};

use crate::evict;
use crate::exit::Failure;
use crate::output::{clean, cut, shortened};
use crate::show;

const KEYS: &str = "q quits, ↑↓ choose, e ends a hold";
/// How many waiters are shown at most.
const WAITERS: usize = 8;

#[derive(Debug)]
pub(super) struct View {
    backend: &'static str,
    locks: Vec<LockStatus>,
    /// By name, since others come and go.
    chosen: Option<LockName>,
    question: Option<(String, Holder)>,
    message: Option<String>,
    /// Why the last look failed.
    failure: Option<String>,
}

/// A line of the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) look: Look,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Bold,
    Chosen,
}

impl View {
    pub(super) fn new(backend: &'static str, locks: Vec<LockStatus>) -> Self {
        let mut view = Self { backend, locks: Vec::new(), chosen: None, question: None, message: None, failure: None };
        view.update(Ok(locks));
        view
    }

    /// What a look found. After one that failed, what was seen last stays.
    pub(super) fn update(&mut self, found: oarlock::Result<Vec<LockStatus>>) {
        match found {
            Ok(locks) => {
                self.failure = None;
                // Where the chosen one is gone, its neighbour is chosen.
                let place = self.place();
                self.locks = locks;
                if self.place().is_none() {
                    let last = self.locks.len().saturating_sub(1);
                    self.chosen = self.locks.get(place.unwrap_or(0).min(last)).map(|lock| lock.name.clone());
                }
            }
            Err(error) => self.failure = Failure::from(&error).message,
        }
    }

    /// Chooses another lock, so many further down.
    pub(super) fn choose(&mut self, by: isize) {
        self.message = None;
        let last = self.locks.len().saturating_sub(1);
        let place = self.place().map_or(0, |place| place.saturating_add_signed(by).min(last));
        self.chosen = self.locks.get(place).map(|lock| lock.name.clone());
    }

    /// Asks whether to end the chosen lock's hold.
    pub(super) fn ask(&mut self) {
        self.message = None;
        self.question = self.lock().and_then(|lock| Some((lock.name.to_string(), lock.holder()?.clone())));
    }

    pub(super) fn asks(&self) -> bool {
        self.question.is_some()
    }

    /// Takes the question back, and answers what it was about.
    pub(super) fn forget_question(&mut self) -> Option<(String, Holder)> {
        self.question.take()
    }

    pub(super) fn tell(&mut self, message: String) {
        self.message = Some(message);
    }

    fn place(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.locks.iter().position(|lock| lock.name == *chosen)
    }

    fn lock(&self) -> Option<&LockStatus> {
        self.locks.get(self.place()?)
    }

    /// The screen's lines, as many and as wide as it has at most.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<Line> {
        let held = self.locks.iter().filter(|lock| lock.holder().is_some()).count();
        let waiting: usize = self.locks.iter().map(|lock| lock.waiters.len()).sum();
        // A long name leaves the other columns their place.
        let widest = width / 3;
        let line = |text: &str, look| Line { text: cut(&clean(text), width), look };
        let mut lines = vec![line(&format!("{}: {held} held, {waiting} waiting. {KEYS}", self.backend), Look::Plain)];
        let said = match &self.question {
            // First what is asked, whatever there is room for besides.
            Some((name, holder)) => format!("End this hold? [y/N] {}", evict::held(&shortened(name, widest), holder)),
            None => self.failure.as_ref().or(self.message.as_ref()).cloned().unwrap_or_default(),
        };
        lines.push(line(&said, Look::Bold));

        let details = self.details();
        let room = height.saturating_sub(lines.len() + 1 + details.len()).max(1);
        let table = show::table_of(&self.locks, widest);
        let mut rows = table.lines();
        lines.push(line(rows.next().unwrap_or_default(), Look::Bold));
        let place = self.place();
        // The chosen one is always in sight.
        let first = place.map_or(0, |place| (place + 1).saturating_sub(room));
        for (number, row) in rows.enumerate().skip(first).take(room.min(self.locks.len())) {
            lines.push(line(row, if place == Some(number) { Look::Chosen } else { Look::Plain }));
        }
        lines.extend(details.iter().map(|detail| line(detail, Look::Plain)));
        lines.truncate(height);
        lines
    }

    /// What the chosen lock shows, and who waits for it.
    fn details(&self) -> Vec<String> {
        let Some(lock) = self.lock() else { return Vec::new() };
        let mut lines: Vec<_> = show::lines(lock);
        if !lock.waiters.is_empty() {
            lines.push(format!("waiting for {}:", lock.name));
        }
        let numbered = lock.waiters.iter().enumerate().take(WAITERS);
        lines.extend(numbered.map(|(place, waiter)| format!("{:>4}  {}", place + 1, waiter.owner)));
        if lock.waiters.len() > WAITERS {
            lines.push(format!("      and {} more", lock.waiters.len() - WAITERS));
        }
        if !lines.is_empty() {
            lines.insert(0, String::new());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oarlock::{Error, ErrorKind, LockValue, OwnerId, StoreToken};
    use unicode_width::UnicodeWidthChar;

    use super::*;

    fn lock(name: &str, waiters: usize) -> LockStatus {
        let owner = |label: &str| OwnerId::from_store(&format!("{label}@host:7#00000000-0000"));
        let (held_for, remaining) = (Duration::from_secs(3), Duration::from_secs(27));
        let token = StoreToken::new(9).unwrap();
        let holder = Some(Holder::new(owner("sh"), token, held_for, remaining));
        LockStatus::new(LockName::new(name).unwrap(), holder, vec![owner("waiter"); waiters])
    }

    fn texts(view: &View, width: usize, height: usize) -> Vec<String> {
        view.lines(width, height).into_iter().map(|line| line.text.trim_end().to_owned()).collect()
    }

    fn chosen(view: &View) -> Option<String> {
        let lines = view.lines(200, 50).into_iter();
        let chosen = lines.filter(|line| line.look == Look::Chosen).map(|line| line.text).collect::<Vec<_>>();
        assert!(chosen.len() <= 1);
        chosen.first().map(|text| text.split_whitespace().next().unwrap().to_owned())
    }

    #[test]
    fn it_shows_locks_and_who_waits_for_the_chosen_one() {
        let mut view = View::new("redis", vec![lock("a", 0), lock("b", 10)]);
        assert_eq!(chosen(&view).as_deref(), Some("a"));
        assert!(texts(&view, 200, 50)[0].starts_with("redis: 2 held, 10 waiting"));
        assert!(!texts(&view, 200, 50).iter().any(|line| line.contains("waiting for")));
        view.choose(1);
        let lines = texts(&view, 200, 50);
        assert!(lines.iter().any(|line| line == "waiting for b:") && lines.last().unwrap().contains("and 2 more"));
        view.choose(5);
        assert_eq!(chosen(&view).as_deref(), Some("b"));
    }

    #[test]
    fn the_choice_stays_with_its_lock_and_else_goes_to_its_neighbour() {
        let mut view = View::new("redis", vec![lock("b", 0), lock("c", 0)]);
        view.choose(1);
        view.update(Ok(vec![lock("a", 0), lock("b", 0), lock("c", 0)]));
        assert_eq!(chosen(&view).as_deref(), Some("c"));
        view.update(Ok(vec![lock("a", 0), lock("b", 0)]));
        assert_eq!(chosen(&view).as_deref(), Some("b"));
        view.update(Ok(Vec::new()));
        assert_eq!(chosen(&view), None);
        view.ask();
        assert!(!view.asks());
    }

    #[test]
    fn it_keeps_within_the_screen() {
        let mut view = View::new("redis", (10..60).map(|n| lock(&format!("名{n}"), n % 3)).collect());
        for (width, height) in [(80, 24), (20, 5), (1, 1), (0, 0)] {
            for _ in 0..60 {
                view.choose(1);
                let lines = view.lines(width, height);
                assert!(lines.len() <= height);
                let wide = |line: &Line| line.text.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>();
                assert!(lines.iter().all(|line| wide(line) <= width));
            }
        }
        assert!(texts(&view, 80, 24).iter().any(|line| line.contains("59")), "the chosen one is in sight");
    }

    #[test]
    fn a_long_name_hides_neither_the_question_nor_the_holder() {
        let mut view = View::new("redis", vec![lock(&"jobs/nightly/".repeat(7), 0), lock("b", 0)]);
        view.ask();
        let lines = texts(&view, 80, 24);
        assert!(lines[1].starts_with("End this hold? [y/N] \"jobs/nightly/") && lines[1].contains("… "), "{lines:?}");
        assert!(lines[3].contains("…") && lines[3].contains("27s") && lines[4].contains("27s"), "{lines:?}");
    }

    #[test]
    fn a_value_and_a_kept_hold_are_told_of_the_chosen_one() {
        let owner = OwnerId::from_store("kept#sh@host:7#00000000-0000-0000-0000-000000000000");
        let left = Duration::from_secs(180);
        let holder = Holder::new(owner, StoreToken::new(9).unwrap(), left, left);
        let holder = holder.with_value(Some(LockValue::new("http://a\u{1b}[2J").unwrap()));
        let shown = LockStatus::new(LockName::new("b").unwrap(), [holder], Vec::<OwnerId>::new());
        let mut view = View::new("redis", vec![lock("a", 0), shown]);
        let told = |view: &View, text: &str| texts(view, 200, 50).iter().any(|line| line.starts_with(text));
        assert!(!told(&view, "value: ") && texts(&view, 200, 50)[2].contains("VALUE"));
        view.choose(1);
        assert!(told(&view, "value: http://a\u{fffd}[2J") && told(&view, "done by sh@host:7#"));
        view.ask();
        assert!(told(&view, "End this hold? [y/N] \"b\" is done by sh@host"));
        assert!(texts(&view, 200, 4).len() == 4);
    }

    #[test]
    fn a_failed_look_is_told_and_the_last_one_stays() {
        let mut view = View::new("redis", vec![lock("a", 0)]);
        view.update(Err(Error::new(ErrorKind::Unavailable, "gone")));
        assert!(texts(&view, 200, 50)[1].contains("gone") && chosen(&view).is_some());
        view.update(Ok(Vec::new()));
        assert_eq!((texts(&view, 200, 50)[1].as_str(), chosen(&view)), ("", None));
    }
}
