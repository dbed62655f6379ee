//! The suite on the lock in a folder.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use file_lock::{FileLock, FileLockFactory};
use lock_core::{DistributedLock, LockName, Registry};
use serde_json::{Value, json};
use tempfile::TempDir;

conformance_tests::suite!(FileHarness);

struct FileHarness;

#[async_trait]
impl Harness for FileHarness {
    fn name(&self) -> &'static str {
        "file-lock"
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        const ANSWER: &str = "nothing carries its answers";
        const SERVER: &str = "it has no server";
        &[
            ("answer_held_back", ANSWER),
            ("late_acquire_lands_after_reconnect", SERVER),
            ("drop_every_verb_answer_held", ANSWER),
            ("restarted_while_held", SERVER),
            ("outage_while_waiting", SERVER),
            ("any_connection_swallowed", SERVER),
            ("restarted_with_waiters", SERVER),
        ]
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(FileLockFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        // Where it waits for a disk, so do all others: `cargo xtask test` names a folder in memory by `TMPDIR`.
        Box::new(FileStore { folder: TempDir::new().unwrap(), in_the_way: Mutex::default() })
    }
}

struct FileStore {
    folder: TempDir,
    /// Somebody whose turn does not end.
    in_the_way: Mutex<Option<File>>,
}

impl FileStore {
    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.json")
    }

    fn turn(&self) -> File {
        let turn = File::options().create(true).append(true).open(self.folder.path().join("turn")).unwrap();
        turn.lock().unwrap();
        turn
    }

    fn read(&self) -> Value {
        std::fs::read(self.path()).map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap())
    }

    fn edit(&self, edit: impl FnOnce(&mut Value)) {
        let _turn = self.turn();
        let mut locks = self.read();
        edit(&mut locks);
        std::fs::write(self.path(), locks.to_string()).unwrap();
    }
}

impl Drop for FileStore {
    /// A client that was let go may write yet, and then the folder is not empty.
    fn drop(&mut self) {
        let removed = || std::fs::remove_dir_all(self.folder.path());
        while removed().is_err_and(|error| error.kind() == ErrorKind::DirectoryNotEmpty) {}
    }
}

#[async_trait]
impl Store for FileStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(FileLock::new(self.folder.path(), "oarlock"))
    }

    fn url(&self) -> Option<String> {
        Some(format!("folder:{}", self.folder.path().display()))
    }

    fn url_of_nothing(&self) -> Option<String> {
        Some(format!("folder:{}/missing", self.folder.path().display()))
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        self.read()["held"]["oarlock"][name.as_str()]["owner"].as_str().map(str::to_owned)
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => *self.in_the_way.lock().unwrap() = Some(self.turn()),
            Fault::ReleaseRequests => *self.in_the_way.lock().unwrap() = None,
            Fault::DeleteHold(name) => self.edit(|locks| {
                locks["held"]["oarlock"].as_object_mut().unwrap().remove(name.as_str());
            }),
            Fault::ReplaceStore => std::fs::remove_file(self.path()).unwrap(),
            Fault::RaiseToken(_, above) => self.edit(|locks| locks["token"] = json!(above)),
            Fault::PutForeign(name) => self.edit(|locks| locks["held"]["oarlock"][name.as_str()] = json!("no lock")),
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
