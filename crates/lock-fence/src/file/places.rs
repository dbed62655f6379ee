//! The file, and those beside it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lock_core::{Error, ErrorKind, Result};

use super::content::Content;
use super::refused;

/// Where everything is, whatever link leads there: all who use the file are to find the same lock.
pub(super) struct Places {
    file: PathBuf,
}

impl Places {
    pub(super) fn of(path: &Path) -> Result<Self> {
        let mut place = path.to_owned();
        let found = loop {
            match fs::canonicalize(&place) {
                // A link to a file that is still to be made leads there too. A circle of links is another error.
                Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(&place) {
                    Ok(target) => place = place.parent().unwrap_or(Path::new("")).join(target),
                    Err(_) => break Self::new_in_its_folder(&place)?,
                },
                found => break found,
            }
        };
        let file = found.map_err(|error| refused("find", path, error))?;
        if file.is_dir() { Err(no_file(path)) } else { Ok(Self { file }) }
    }

    fn new_in_its_folder(path: &Path) -> Result<io::Result<PathBuf>> {
        let name = path.file_name().ok_or_else(|| no_file(path))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(fs::canonicalize(folder).map(|folder| folder.join(name)))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    /// Waits until it is our turn, which ends when the file is closed everywhere. Nobody of us replaces the file. If somebody
    /// has removed it meanwhile, the turn is that of the file that is there now.
    pub(super) fn turn(&self, slot: Option<u32>, shared: bool) -> Result<File> {
        let path = match slot {
            Some(slot) => self.beside(&format!(".slot{slot}.lock")),
            None => self.beside(".lock"),
        };
        let taken = || {
            loop {
                let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
                let taken = if shared { file.lock_shared() } else { file.lock() };
                match taken {
                    // By a signal that the process handles.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(()) if !is_at(&file, &path) => {}
                    taken => return taken.map(|()| file),
                }
            }
        };
        taken().map_err(|error| refused("lock", &path, error))
    }

    /// The content, none where there is no file.
    pub(super) fn read(&self) -> Result<Content> {
        let bytes = match fs::read(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::default()),
            read => read.map_err(|error| refused("read", &self.file, error))?,
        };
        Content::parse(&bytes).ok_or_else(|| {
            let file = self.file.display();
            let message = format!("{file} has no marks of fencing tokens; name another file, or move this one away");
            Error::new(ErrorKind::Invalid, message)
        })
    }

    /// Puts this content in the place of the one that is there. Only who has the turn calls this.
    pub(super) fn replace(&self, content: &Content) -> Result<()> {
        let temporary = self.beside(".tmp");
        let written = self.write(&temporary, &content.to_bytes());
        let renamed = written.and_then(|()| fs::rename(&temporary, &self.file));
        if let Err(error) = renamed {
            // The next writer would write over it.
            let _ = fs::remove_file(&temporary);
            return Err(refused("write", &self.file, error));
        }
        self.sync_folder().map_err(|error| {
            let message =
                format!("{} was written, and may be as before after a crash; write it again", self.file.display());
            Error::new(ErrorKind::Unknown, message).with_source(error)
        })
    }

    /// Writes what is to be renamed. What a crash left of an earlier one is written over.
    fn write(&self, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(temporary)?;
        if let Ok(old) = fs::metadata(&self.file) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// The name in the folder is data of its own.
    #[cfg(unix)]
    fn sync_folder(&self) -> io::Result<()> {
        File::open(self.file.parent().unwrap_or(Path::new("/")))?.sync_all()
    }

    /// Elsewhere a folder cannot be opened.
    #[cfg(not(unix))]
    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Does this path still lead to this file?
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata().map(of), fs::metadata(path).map(of)), (Ok(ours), Ok(there)) if ours == there)
}

/// Elsewhere a file that is open is not removed.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

fn no_file(path: &Path) -> Error {
    Error::new(ErrorKind::Invalid, format!("{:?} names no file", path.display()))
}
