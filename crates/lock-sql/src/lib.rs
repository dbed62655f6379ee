//! Oarlock's backend for SQL databases: a table with a unique index, each decision one statement that commits by
//! itself.
//!
//! - The feature `sqlite` (on by default) brings `SqliteLock`: a file that the processes of one host share, without any
//!   server.
//! - The feature `postgres` (on by default) brings `PostgresLock`: a PostgreSQL database, for every host that reaches
//!   it; and `PostgresSessionLock`, which takes locks by sessions of the server.
//! - The feature `mysql` (on by default) brings `MySqlLock` and `MySqlSessionLock`: the same in MySQL or MariaDB.
//! - The feature `tls` (on by default) protects the connections to servers.
//!
//! Locks in PostgreSQL and MySQL can join the table of [ShedLock](https://github.com/lukas-krecan/ShedLock): they and
//! the jobs of Java programs then exclude each other. `ServerOptions::shedlock` says so.
//!
//! Each statement that is sent for a request is an event of `tracing` with the target `lock_sql::sent`, at the level
//! `TRACE`; one that deletes old rows beside the requests has the target `lock_sql::swept`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("locks.db");
//! use std::sync::Arc;
//!
//! let backend = lock_sql::SqliteLock::open(path, "oarlock").await?;
//! let locks = lock_core::Locks::new(Arc::new(backend));
//! let guard = locks.mutex("orders/42").lock().await?;
//! guard.unlock().await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod keys;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod modes;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod server;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod session;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod shedlock;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod sweep;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod together;

#[cfg(feature = "mysql")]
pub use mysql::{MySqlFactory, MySqlLock, MySqlSessionLock};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresFactory, PostgresLock, PostgresSessionLock};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use server::ServerOptions;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteFactory, SqliteLock, SqliteOptions, default_path};
