//! One function for each target. It hands a text, in lines where it is several, to the properties that hold whatever
//! the text is.
//!
//! What a library keeps to itself is built here once more, so that none has a wider interface for it.
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "of what is built here once more, not all is for reading text")]

#[path = "../../crates/lock-core/tests/properties/mod.rs"]
mod properties;

mod etcd_backend;
mod redis_backend;
mod zookeeper_backend;

use etcd_backend::properties as etcd;
use redis_backend::properties as redis_lock;
use zookeeper_backend::properties as zookeeper;

/// The first lines, one for each part but the last, which is all the rest.
fn parts<const N: usize>(text: &str) -> [&str; N] {
    let mut lines = text.splitn(N, '\n');
    std::array::from_fn(|_| lines.next().unwrap_or_default())
}

/// A name or an owner.
pub fn names(text: &str) {
    properties::a_name_is_kept_as_it_is_or_refused(text);
    properties::an_owner_found_in_a_store_is_not_shown_whole(text);
}

/// A URL; or a user, what is within a password, and a host.
pub fn urls(text: &str) {
    properties::a_url_is_read_or_refused(text);
    redis_lock::a_url_is_read_or_refused(text);
    let [user, within, host] = parts(text);
    properties::a_password_never_shows(user, within, host);
}

/// A file; or a setting and its value.
pub fn configs(text: &str) {
    properties::a_file_is_taken_or_refused(text);
    let [setting, value] = parts(text);
    properties::a_setting_is_taken_or_refused(setting, value);
}

/// A prefix and two names, of which the first may be a foreign key.
pub fn redis_keys(text: &str) {
    let [prefix, name, other] = parts(text);
    redis_lock::names_have_keys_of_their_own(prefix, name, other);
    redis_lock::a_key_of_another_does_no_harm(prefix, name);
}

/// A remaining time, the server's time, and a grant or a place in line.
pub fn redis_answers(text: &str) {
    let [remaining, now, grant] = parts(text);
    let (remaining, now) = (remaining.parse().unwrap_or(-1), now.parse().unwrap_or(0));
    redis_lock::a_grant_and_a_place_are_read_or_refused(grant, remaining, now);
}

/// What a server of Redis answers.
pub fn redis_wire(bytes: &[u8]) {
    redis_lock::an_answer_is_whole_when_it_is_read(bytes);
}

/// A prefix and two names, of which the first may be a foreign node; or children of a lock's node.
pub fn zookeeper_nodes(text: &str) {
    let [prefix, name, other] = parts(text);
    zookeeper::names_have_nodes_of_their_own(prefix, name, other);
    zookeeper::a_node_of_another_does_no_harm(prefix, name);
    // Each is held against all others.
    let children: Vec<_> = text.lines().take(50).map(str::to_owned).collect();
    zookeeper::each_has_one_before_it_but_the_first(&children);
    if let Ok(first) = prefix.parse() {
        zookeeper::a_line_keeps_its_order(first, &name.as_bytes()[..name.len().min(50)]);
    }
}

/// A prefix, two names, and what is as long as the number of a lease and of a place; the first name may be a foreign key.
pub fn etcd_keys(text: &str) {
    let [prefix, name, other, rest] = parts(text);
    etcd::names_have_keys_of_their_own(prefix, name, other, rest.len() as i64 + 1, rest.len());
    etcd::a_key_of_another_does_no_harm(prefix, name);
}
