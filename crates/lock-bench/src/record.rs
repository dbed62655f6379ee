//! What runs found, kept in a file so that several of them fill one page.

use std::path::PathBuf;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::Figure;
use crate::beside::Row;
use crate::page;

/// What this run has found so far, and in the file what others did before it.
#[derive(Debug)]
pub struct Record {
    file: Option<PathBuf>,
    page: Option<PathBuf>,
    found: Found,
    new: Vec<Figure>,
}

/// All of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) figures: Vec<Figure>,
    pub(crate) rows: Vec<Row>,
}

impl Record {
    /// Goes on with what is in this file, if it is there; without one, nothing is kept. All that is known is written as
    /// a page too.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is none of ours.
    pub fn open(file: Option<PathBuf>, page: Option<PathBuf>) -> io::Result<Self> {
        let found = match file.as_ref().map(fs::read) {
            Some(Ok(text)) => serde_json::from_slice(&text)?,
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => Found::default(),
        };
        Ok(Self { file, page, found, new: Vec::new() })
    }

    /// Adds a figure, in place of one that was called the same, and saves: a later benchmark may fail.
    pub fn push(&mut self, figure: Figure) {
        match self.found.figures.iter_mut().find(|known| known.what == figure.what) {
            Some(known) => *known = figure.clone(),
            None => self.found.figures.push(figure.clone()),
        }
        self.new.push(figure);
        self.save();
    }

    /// Adds several figures.
    pub fn extend(&mut self, figures: impl IntoIterator<Item = Figure>) {
        figures.into_iter().for_each(|figure| self.push(figure));
    }

    /// Sets what all locks did beside each other, and saves.
    pub fn set_rows(&mut self, rows: Vec<Row>) {
        self.found.rows = rows;
        self.save();
    }

    /// Saves what is known.
    pub fn save(&self) {
        if let Some(file) = &self.file {
            let text = serde_json::to_vec_pretty(&self.found).expect("plain data");
            fs::write(file, text).expect("a file that can be written");
        }
        if let Some(page) = &self.page {
            fs::write(page, page::page(&self.found)).expect("a page that can be written");
        }
    }

    /// The figures of this run.
    pub fn new_figures(&self) -> &[Figure] {
        &self.new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_was_measured_again_takes_the_place_of_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("record.json");
        let figure = |what: &str, value: f64| Figure::at_least(what, vec![value], 1.5);
        let mut first = Record::open(Some(file.clone()), None).unwrap();
        first.extend([figure("a: x", 1.0), figure("a: y", 1.0)]);
        let mut second = Record::open(Some(file.clone()), None).unwrap();
        second.push(figure("a: x", 2.0));
        assert_eq!(second.new_figures().len(), 1);
        let known = Record::open(Some(file), None).unwrap().found.figures;
        let known: Vec<_> = known.iter().map(|figure| (figure.what.as_str(), figure.value)).collect();
        assert_eq!(known, [("a: x", 2.0), ("a: y", 1.0)]);
    }
}
