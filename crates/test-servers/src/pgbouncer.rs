//! PgBouncer: a pooler before a PostgreSQL server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use tempfile::TempDir;

use crate::PostgresServer;
use crate::postgres::PASSWORD;
use crate::process::{Disk, Process, folder, give_away, on_free_port, unprivileged};

/// A `pgbouncer` process that lends two connections to a server for a transaction at a time. Dropping it kills it.
#[derive(Debug)]
pub struct PgBouncer {
    _process: Process,
    _folder: TempDir,
    port: u16,
}

impl PgBouncer {
    /// A pooler before this server.
    pub fn start(server: &PostgresServer) -> Self {
        let folder = folder(Disk::Memory);
        let (port, process) = on_free_port("pgbouncer", |port| {
            let settings = folder.path().join("pgbouncer.ini");
            fs::write(&settings, ini(server.address(), port)).expect("a file");
            give_away(&settings);
            let mut pgbouncer = unprivileged(Path::new("/usr/sbin/pgbouncer"));
            let mut process = Process::spawn(pgbouncer.arg(&settings), "pgbouncer");
            process.is_ready(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()).then_some(process)
        });
        Self { _process: process, _folder: folder, port }
    }

    /// The URL of the server's first database through the pooler, for the server's superuser.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

fn ini(server: SocketAddr, port: u16) -> String {
    format!(
        "[databases]\n\
         * = host={} port={} user=postgres password={PASSWORD}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = 2\n",
        server.ip(),
        server.port()
    )
}
