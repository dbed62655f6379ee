//! Why bars are missed, as far as it is known.

use crate::Figure;

/// What a figure is of, and what it would take.
const REASONS: [(&str, &str); 17] = [
    (
        "memory: lock + unlock / tokio::sync::Mutex",
        "tokio's mutex is within one task, and takes 20 ns. Here an acquisition has an owner, a lease and an entry with \
         the keeper: 0.9 µs, of which no part is more than a tenth.",
    ),
    ("sqlite: lock + unlock, median time / bare insert + delete", "Within the spread."),
    (
        "sqlite: hand-offs with 100 processes / with 2",
        "Within the spread: two processes often take the lock again without a hand-off.",
    ),
    (
        "redis: 64 tasks on 64 names, rate / bare pair",
        "Within the spread. The server's processor decides, and a line is looked at for each acquisition.",
    ),
    (
        "redis: 64 tasks on 64 names, rate / rslock",
        "`rslock` asks for two commands an acquisition. Here there is a token besides, which is counted and kept, and \
         the line is looked at, so that nobody passes a waiter.",
    ),
    ("redis: a checked SET, median time / SET", "The check is a script, which costs Redis more than a command."),
    (
        "redis: 64 tasks on one name, rate / tokio::sync::Mutex",
        "A turn in the process reads the clock three times, for the lease, and the processes' number, for a fork.",
    ),
    (
        "redis: 64 tasks on one name, rate / bare baton in the process",
        "As above; and a token counts 255 turns, so after these the store is asked.",
    ),
    (
        "postgres: 8 processes, nothing between, median hand-off / bare pair",
        "Within the spread. The bell rings after the commit, by a second connection, so that no other commit waits for it.",
    ),
    (
        "postgres: hand-offs with 100 processes / with 2",
        "`NOTIFY` signals every session of the database that listens, whatever the channel. With a hundred of them, more \
         than half of both cores goes there.",
    ),
    (
        "postgres by sessions: hand-offs with 100 processes / with 2",
        "A session that waits for an advisory lock keeps a snapshot, so old versions of the rows stay.",
    ),
    (
        "postgres by sessions: 8 processes, rate / advisory",
        "The bare advisory lock writes nothing. Here the holder is written down and taken away again, for `inspect`: of \
         0.31 ms a turn, the server computes for 0.24.",
    ),
    ("mariadb: 64 tasks on 64 names, rate / bare pairs on 8 connections", "Within the spread."),
    (
        "mariadb: 8 processes, median hand-off / bare pair",
        "The server's processor decides: the statements of one hand-over take it 0.8 ms, of which the disk has 0.24. \
         Where a durable write takes 3 ms, a hand-off is 1.2 bare pairs.",
    ),
    (
        "mariadb by sessions: 8 processes, rate / get-lock",
        "`GET_LOCK` writes nothing. Here the holder is written down and taken away again, for `inspect`.",
    ),
    ("zookeeper: 8 processes, hand-offs / Curator", "Within the spread."),
    (
        "zookeeper: 8 processes, 2 ms holds and pauses / flock",
        "Within the spread; the client's own recipe, which does not wait for its release, reaches 0.78.",
    ),
];

/// Why this figure's bar is missed.
pub(crate) fn why(figure: &Figure) -> &'static str {
    let known = REASONS.iter().find(|(what, _)| *what == figure.what);
    known.map_or("The cause is not known.", |(_, why)| why)
}
