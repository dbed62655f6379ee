//! `leader`: who holds a lock and what it shows, now or at each change.

use oarlock::{Election, Holder, Locks, Observed};
use serde::Serialize;

use crate::args::LeaderArgs;
use crate::exit::{CONFLICT, Failure, SIGNAL, told};
use crate::output::{clean, print, print_json, print_json_line};
use crate::run::{INTERRUPTIONS, Signals};
use crate::show::{HolderView, state};

pub(crate) async fn leader(args: &LeaderArgs, locks: &Locks) -> Result<u8, Failure> {
    let election = locks.election(args.name.as_str());
    if args.watch {
        return watch(args, &election).await;
    }
    let leader = election.leader().await?;
    let seen = leader.as_ref().map_or(Seen::Free, Seen::Held);
    if args.json {
        print_json(&seen.view(&args.name))?
    } else {
        print(&seen.line())?
    }
    Ok(if args.exit_code && leader.is_none() { CONFLICT } else { 0 })
}

/// Until a signal.
async fn watch(args: &LeaderArgs, election: &Election) -> Result<u8, Failure> {
    let mut signals = Signals::listen(INTERRUPTIONS)?;
    let mut observer = election.observe()?;
    loop {
        let observed = tokio::select! {
            observed = observer.next() => observed?,
            signal = signals.next() => return Ok(SIGNAL + signal as u8),
        };
        let seen = match &observed {
            Observed::Held(holder) => Seen::Held(holder),
            Observed::Free => Seen::Free,
            Observed::Blind(error) => Seen::Blind(told(error)),
            _ => continue,
        };
        if args.json { print_json_line(&seen.view(&args.name))? } else { print(&seen.line())? }
    }
}

enum Seen<'a> {
    Held(&'a Holder),
    Free,
    /// Why.
    Blind(String),
}

#[derive(Serialize)]
struct View<'a> {
    name: &'a str,
    state: &'static str,
    /// As `inspect` says it; none while nobody knows.
    held: Option<bool>,
    holder: Option<HolderView<'a>>,
    error: Option<&'a str>,
}

impl Seen<'_> {
    fn line(&self) -> String {
        match self {
            Self::Held(holder) => match &holder.value {
                Some(value) => format!("{}: {}\n", state(holder), clean(value.as_str())),
                None => format!("{}\n", state(holder)),
            },
            Self::Free => "free\n".to_owned(),
            Self::Blind(why) => format!("blind: {}\n", clean(why)),
        }
    }

    fn view<'a>(&'a self, name: &'a str) -> View<'a> {
        let (state, held, holder, error) = match self {
            Self::Held(holder) => {
                (if holder.kept { "kept" } else { "held" }, Some(true), Some(HolderView::of(holder)), None)
            }
            Self::Free => ("free", Some(false), None, None),
            Self::Blind(why) => ("blind", None, None, Some(why.as_str())),
        };
        View { name, state, held, holder, error }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oarlock::{LockValue, OwnerId, StoreToken};

    use super::*;

    fn holder(owner: &str, value: Option<&str>) -> Holder {
        let owner = OwnerId::from_store(&format!("{owner}api@host:7#00000000-0000-0000-0000-000000000000"));
        let holder = Holder::new(owner, StoreToken::new(9).unwrap(), Duration::from_secs(3), Duration::from_secs(180));
        holder.with_value(value.map(|value| LockValue::new(value).unwrap()))
    }

    #[test]
    fn each_state_is_one_line() {
        let (leader, plain, kept) = (holder("", Some("http://a\n\u{1b}[2J")), holder("", None), holder("kept#", None));
        for (seen, begins, ends, state) in [
            (Seen::Held(&leader), "held by api@host:7#", " for 3s: http://a\u{fffd}\u{fffd}[2J", "held"),
            (Seen::Held(&plain), "held by api@host:7#", " for 3s", "held"),
            (Seen::Held(&kept), "done by api@host:7#", " for another 3m", "kept"),
            (Seen::Free, "free", "free", "free"),
            (Seen::Blind("no\nway".to_owned()), "blind: ", "no\u{fffd}way", "blind"),
        ] {
            let line = seen.line();
            let line = line.strip_suffix('\n').unwrap();
            assert!(line.starts_with(begins) && line.ends_with(ends), "{line:?}");
            assert!(!line.contains(char::is_control));
            let view = serde_json::to_value(seen.view("x")).unwrap();
            assert_eq!((&view["name"], &view["state"]), (&"x".into(), &state.into()));
            assert_eq!(view["holder"].is_object(), ["held", "kept"].contains(&state));
            assert_eq!(view["holder"]["kept"] == true, state == "kept");
            assert_eq!(
                (view["held"].as_bool(), view["error"].is_string()),
                match state {
                    "blind" => (None, true),
                    _ => (Some(state != "free"), false),
                }
            );
        }
        let view = serde_json::to_value(Seen::Held(&leader).view("x")).unwrap();
        assert_eq!(view["holder"]["value"], "http://a\n\u{1b}[2J");
    }
}
