//! The disk on which all servers save what they grant.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::{Figure, middle};

/// The median time of a durable write, in microseconds: a few bytes more in a file, as in a log, and `fdatasync`.
pub async fn durable_write(folder: &Path, rounds: usize, each: Duration) -> Figure {
    let mut file = File::create(folder.join("log")).expect("a new file");
    let mut times = Vec::new();
    for _ in 0..rounds {
        let write = async || {
            file.write_all(&[7; 512]).expect("room on the disk");
            file.sync_data().expect("a disk");
        };
        let single = middle(each, write).await * 1e6;
        println!("    disk: a durable write {single:.0} us");
        times.push(single);
    }
    Figure::reported("disk: a durable write, µs", times)
}
