//! What needs servers, but for the suite.

mod bell;
mod by_hand;
mod by_sessions;
mod common;
mod faults_mysql;
mod faults_postgres;
mod growth;
mod hostile;
mod kept_mysql;
mod kept_postgres;
mod kept_sessions;
mod late_postgres;
mod late_sessions_mysql;
mod long_lines;
mod notifying;
mod pools;
#[path = "../says/mod.rs"]
mod says;
mod sent_twice;
mod sessions;
mod sessions_mysql;
mod setups_mysql;
mod setups_postgres;
mod shedlock;
mod shedlock_mysql;
mod shedlock_postgres;
mod tls;
mod together;
