//! The terminal: taken over as a whole, and given back as it was.

use std::io::{self, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};

use super::view::{Look, View};

/// Dropping it gives the terminal back.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        // From here on the drop undoes what was done.
        let screen = Self(());
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    pub(super) fn draw(&self, view: &View) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let mut out = io::stdout().lock();
        let lines = view.lines(width.into(), height.into());
        for (row, line) in (0..).zip(&lines) {
            let attribute = match line.look {
                Look::Plain => Attribute::Reset,
                Look::Bold => Attribute::Bold,
                Look::Chosen => Attribute::Reverse,
            };
            queue!(out, MoveTo(0, row), Clear(ClearType::UntilNewLine), SetAttribute(attribute))?;
            queue!(out, Print(&line.text), SetAttribute(Attribute::Reset))?;
        }
        if lines.len() < usize::from(height) {
            queue!(out, MoveTo(0, lines.len() as u16), Clear(ClearType::FromCursorDown))?;
        }
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
