//! `top`: the locks of a store, looked at each second.

mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use nix::sys::signal::Signal;
use oarlock::{LockStatus, Locks};
use tokio::time::sleep;

use crate::args::TopArgs;
use crate::exit::{Failure, SIGNAL};
use crate::output::print;
use crate::run::{INTERRUPTIONS, Signals};
use crate::{evict, show};
use screen::Screen;
use view::View;

const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn top(args: &TopArgs, locks: &Locks) -> Result<u8, Failure> {
    let first = show::all(&args.prefix, locks).await?;
    // What is no more than a line printer calls itself so.
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if args.once || dumb || !io::stdout().is_terminal() {
        print(&show::table(&first))?;
        return Ok(0);
    }
    // On a terminal ^C is a key.
    let mut signals = Signals::listen(INTERRUPTIONS)?;
    let screen = Screen::open()?;
    let ended = tokio::select! {
        ended = watch(args, locks, &screen, first) => ended,
        signal = signals.next() => Ok(SIGNAL + signal as u8),
    };
    drop(screen);
    ended
}

/// Until somebody leaves. Dropping it changes nothing, but an eviction under way may or may not be done.
async fn watch(args: &TopArgs, locks: &Locks, screen: &Screen, first: Vec<LockStatus>) -> Result<u8, Failure> {
    let mut view = View::new(locks.capabilities().backend, first);
    let mut keys = EventStream::new();
    loop {
        // Another look each round, whose beginning no key delays for ever.
        let mut look = std::pin::pin!(async {
            sleep(LOOK_EVERY).await;
            show::all(&args.prefix, locks).await
        });
        loop {
            screen.draw(&view)?;
            tokio::select! {
                found = &mut look => {
                    view.update(found);
                    break;
                }
                event = keys.next() => match event {
                    Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => match act(key, &mut view) {
                        Act::Nothing => {}
                        Act::Leave(code) => return Ok(code),
                        Act::Evict => {
                            evict(&mut view, locks).await;
                            break;
                        }
                    },
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    // The terminal is gone.
                    None => return Ok(SIGNAL + Signal::SIGHUP as u8),
                },
            }
        }
    }
}

/// What a key asks for.
enum Act {
    Nothing,
    Leave(u8),
    Evict,
}

fn act(key: KeyEvent, view: &mut View) -> Act {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control && key.code == KeyCode::Char('c') {
        return Act::Leave(SIGNAL + Signal::SIGINT as u8);
    }
    if view.asks() {
        // Only a clear yes is one.
        if key.code == KeyCode::Char('y') {
            return Act::Evict;
        }
        view.forget_question();
        return Act::Nothing;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Act::Leave(0),
        KeyCode::Up | KeyCode::Char('k') => view.choose(-1),
        KeyCode::Down | KeyCode::Char('j') => view.choose(1),
        KeyCode::Char('e') => view.ask(),
        _ => {}
    }
    Act::Nothing
}

async fn evict(view: &mut View, locks: &Locks) {
    let Some((name, holder)) = view.forget_question() else { return };
    let told = match evict::end(&name, &holder, locks).await {
        Ok(Some(ended)) => format!("ended the hold on {name:?}; {}", evict::told(&ended, locks)),
        Ok(None) => format!("{name:?} is not held any more"),
        Err(failure) => failure.message.unwrap_or_default(),
    };
    view.tell(told);
}
