//! `cargo bench -p lock-bench --bench locks`: every bar in one run, or those whose name has a word in it that is given
//! after `--`. Ends with an error if one is missed. `--record FILE` adds what was found to a file, `--page FILE` writes
//! all that is in it, and `--as-measured` measures nothing before.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lock_bench::record::Record;
use lock_bench::{
    beside, contended, disk, etcd, fence, http, kept, memory, modes, mysql, postgres, queue, quorum, redis, several,
    sqlite, zookeeper,
};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == contended::WORKER).is_some() {
        runtime.block_on(contended::work(arguments));
        return ExitCode::SUCCESS;
    }
    let (mut words, mut record, mut page, mut as_measured) = (Vec::new(), None, None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--record" => record = Some(PathBuf::from(arguments.next().expect("--record FILE"))),
            "--page" => page = Some(PathBuf::from(arguments.next().expect("--page FILE"))),
            // Says cargo.
            "--bench" => {}
            "--as-measured" => as_measured = true,
            flag if flag.starts_with('-') => {
                eprintln!(
                    "{flag} is none of --record FILE, --page FILE and --as-measured; words choose what is measured"
                );
                return ExitCode::FAILURE;
            }
            _ => words.push(argument),
        }
    }
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let second = Duration::from_secs(1);
    let mut figures = Record::open(record, page).expect("a record, or none yet");
    if as_measured {
        figures.save();
        return ExitCode::SUCCESS;
    }
    if wanted("memory-uncontended") {
        figures.push(runtime.block_on(memory::uncontended(7, second / 2)));
    }
    if wanted("disk") {
        figures.push(runtime.block_on(disk::durable_write(folder.path(), 5, second)));
    }
    if wanted("sqlite-uncontended") {
        figures.push(runtime.block_on(sqlite::uncontended(folder.path(), 15, second / 2)));
    }
    if wanted("sqlite-library") {
        figures.push(runtime.block_on(sqlite::beside_the_library(folder.path(), 9, second / 2)));
    }
    if wanted("sqlite-contended") {
        figures.extend(sqlite::contended(folder.path(), 5, second * 4));
    }
    if wanted("sqlite-crowded") {
        figures.push(sqlite::crowded(5, second * 4));
    }
    if wanted("memory-owners") {
        figures.push(runtime.block_on(memory::many_owners(7, 10_000)));
    }
    if wanted("memory-kept") {
        figures.push(runtime.block_on(kept::memory(10_000, 3)));
    }
    if wanted("redis-kept") {
        figures.extend(runtime.block_on(kept::redis(10_000, 3)));
    }
    if wanted("redis-uncontended") {
        figures.extend(runtime.block_on(redis::uncontended(7, second)));
    }
    if wanted("quorum-uncontended") {
        figures.push(runtime.block_on(quorum::uncontended(7, second)));
    }
    if wanted("http-check") {
        figures.push(runtime.block_on(http::check(7, second / 2)));
    }
    if wanted("redis-fence") {
        figures.extend(runtime.block_on(fence::redis(5, second)));
    }
    if wanted("sqlite-fence") {
        figures.extend(runtime.block_on(fence::sqlite(folder.path(), 7, second)));
    }
    if wanted("postgres-fence") {
        figures.extend(runtime.block_on(fence::postgres(7, second)));
    }
    if wanted("mariadb-fence") {
        figures.extend(runtime.block_on(fence::mariadb(7, second)));
    }
    if wanted("etcd-uncontended") {
        figures.extend(runtime.block_on(etcd::uncontended(7, second)));
    }
    if wanted("etcd-contended") {
        figures.extend(etcd::contended(5, second * 2));
    }
    if wanted("etcd-crowded") {
        figures.push(etcd::crowded(5, second * 4));
    }
    // Tasks that contend do it on several threads.
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    if wanted("etcd-messages") {
        figures.push(threads.block_on(etcd::messages(5, second * 2)));
    }
    if wanted("sqlite-names") {
        figures.push(threads.block_on(sqlite::many_names(folder.path(), 7, second)));
    }
    if wanted("redis-queue-one-name") {
        figures.extend(threads.block_on(queue::one_name(7, second)));
    }
    if wanted("redis-queue-many-names") {
        figures.push(threads.block_on(queue::many_names(15, second)));
    }
    if wanted("every-store-queue") {
        figures.extend(threads.block_on(queue::every_store(folder.path(), 5, second)));
    }
    if wanted("redis-queue-another-process") {
        figures.push(threads.block_on(queue::another_process(5, second * 2)));
    }
    if wanted("redis-contended") {
        figures.extend(runtime.block_on(redis::contended(5, second * 2)));
    }
    if wanted("redis-crowded") {
        figures.push(redis::crowded(5, second * 4));
    }
    if wanted("postgres-uncontended") {
        figures.push(runtime.block_on(postgres::uncontended(9, second)));
    }
    if wanted("postgres-names") {
        figures.push(runtime.block_on(postgres::many_names(7, second * 2)));
    }
    if wanted("postgres-contended") {
        figures.extend(runtime.block_on(postgres::eight_processes(folder.path(), 5, second * 4)));
    }
    if wanted("postgres-crowded") {
        figures.extend(postgres::crowded(5, second * 4));
    }
    if wanted("postgres-sessions") {
        figures.extend(postgres::sessions(5, second * 4));
    }
    if wanted("postgres-kept") {
        figures.extend(runtime.block_on(postgres::kept(10_000, second * 30)));
    }
    if wanted("postgres-waiting") {
        figures.push(runtime.block_on(postgres::waiting(100, second * 20)));
    }
    if wanted("mysql-waiting") {
        figures.push(runtime.block_on(mysql::waiting(100, second * 20)));
    }
    if wanted("mysql-uncontended") {
        figures.push(runtime.block_on(mysql::uncontended(9, second)));
    }
    if wanted("mysql-names") {
        figures.push(runtime.block_on(mysql::many_names(7, second * 2)));
    }
    if wanted("mysql-contended") {
        figures.extend(runtime.block_on(mysql::eight_processes(folder.path(), 5, second * 4)));
    }
    if wanted("mysql-sessions") {
        figures.extend(mysql::sessions(5, second * 4));
    }
    if wanted("mysql-crowded") {
        figures.extend(mysql::crowded(5, second * 4));
    }
    if wanted("zookeeper-uncontended") {
        figures.push(runtime.block_on(zookeeper::uncontended(7, second)));
    }
    if wanted("zookeeper-contended") {
        figures.extend(zookeeper::contended(folder.path(), 3, second * 3));
    }
    if wanted("zookeeper-crowded") {
        figures.push(zookeeper::crowded(5, second * 4));
    }
    for store in modes::STORES {
        if wanted(&format!("{store}-modes")) {
            figures.extend(runtime.block_on(modes::beside_the_mutex(store, folder.path(), 5, second)));
        }
    }
    for store in modes::STORES {
        if wanted(&format!("{store}-several")) {
            figures.push(runtime.block_on(several::random_orders(store, folder.path(), 5, second * 2)));
        }
    }
    for store in ["redis", "postgres", "mariadb", "sqlite"] {
        if wanted(&format!("{store}-permits")) {
            figures.push(threads.block_on(several::permits(store, folder.path(), 5, second * 2)));
        }
    }
    if wanted("every-lock") {
        figures.set_rows(beside::every_lock(folder.path(), 3, second));
    }
    let new = figures.new_figures();
    println!("\nRatios, median (lowest–highest round):");
    new.iter().for_each(|figure| figure.print());
    if new.iter().all(|figure| figure.is_met()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
