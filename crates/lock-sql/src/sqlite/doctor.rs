//! Settings of the file and where it lies that void a promise.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lock_core::{Finding, Result};

use super::SqliteLock;
use super::statements::{Ask, JOURNAL_MODE};

impl SqliteLock {
    pub(super) async fn findings(&self) -> Result<Vec<Finding>> {
        let answer = self.run_again(Ask { statement: JOURNAL_MODE, ..Ask::default() }).await?;
        let mode: String = answer.rows.first().map(|row| row.get("journal_mode")).unwrap_or_default();
        let path = &self.store.path;
        Ok([journal_finding(&mode), network_finding(path)].into_iter().flatten().chain(rights_findings(path)).collect())
    }
}

fn journal_finding(mode: &str) -> Option<Finding> {
    (mode != "wal").then(|| {
        Finding::new(
            format!("journal_mode={mode}"),
            "a reader can hold up a writer, so that requests fail as busy".to_owned(),
            "move the file to a local file system that can do shared memory".to_owned(),
        )
    })
}

#[cfg(target_os = "linux")]
fn network_finding(path: &Path) -> Option<Finding> {
    let found = rustix::fs::statfs(path).ok()?.f_type;
    let name = network_file_system(found as u64 & 0xffff_ffff)?;
    Some(Finding::new(
        format!("{} is on {name}", path.display()),
        "exclusion between hosts: leases go by one host's clock, and the log's index is memory of one host".to_owned(),
        "move the file to a local disk; for locks between hosts choose a backend with a server".to_owned(),
    ))
}

#[cfg(not(target_os = "linux"))]
fn network_finding(_path: &Path) -> Option<Finding> {
    None
}

/// The name of a file system that several hosts share, by its number in statfs(2).
#[cfg(target_os = "linux")]
fn network_file_system(number: u64) -> Option<&'static str> {
    Some(match number {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x0102_1997 => "9P",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x2003_0528 => "OrangeFS",
        0x786f_4256 => "a folder of VirtualBox's host",
        0xbacb_acbc => "a folder of VMware's host",
        0x6573_5546 => "FUSE, as sshfs, GlusterFS and a virtual machine's shared folders are",
        _ => return None,
    })
}

fn rights_findings(path: &Path) -> Vec<Finding> {
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o002;
    let open_to_all = |path: &Path| {
        let mode = fs::metadata(path).ok()?.permissions().mode();
        (mode & OTHERS_WRITE != 0 && mode & STICKY == 0).then(|| {
            Finding::new(
                format!("{} has mode {:04o}", path.display(), mode & 0o7777),
                "exclusion: every user of the host can change, remove or replace the locks".to_owned(),
                format!("chmod o-w {}", path.display()),
            )
        })
    };
    [Some(path), path.parent()].into_iter().flatten().filter_map(open_to_all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_names_what_is_wrong() {
        assert_eq!(journal_finding("wal"), None);
        assert!(journal_finding("delete").unwrap().setting.contains("delete"));
        #[cfg(target_os = "linux")]
        {
            assert_eq!((network_file_system(0x6969), network_file_system(0xef53)), (Some("NFS"), None));
            // By the header linux/magic.h.
            assert!(network_file_system(0x6573_5546).is_some_and(|name| name.contains("FUSE")));
        }
    }

    #[test]
    fn rights_of_others_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        fs::write(&path, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&path, 0o660);
        assert_eq!(rights_findings(&path), []);
        set(&path, 0o666);
        assert_eq!(rights_findings(&path).len(), 1);
        set(folder.path(), 0o777);
        assert_eq!(rights_findings(&path).len(), 2);
        set(folder.path(), 0o1777);
        assert_eq!(rights_findings(&path).len(), 1, "in a sticky folder nobody can replace it");
    }
}
