//! `cargo xtask compare`: `oarlock compare` on every store that can be started here, each with its files on a real
//! disk, and saving what it grants before it answers.

use std::any::Any;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use test_servers::{Disk, EtcdCluster, MariaDbServer, PostgresServer, RedisServer, ZookeeperServers};

use crate::cargo;

/// How long to measure, and where to write.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// About how long to measure each store.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The page with plots and tables.
    #[arg(long, default_value = "target/compare.html")]
    html: PathBuf,
    /// A picture of some of it, made by Chromium.
    #[arg(long, num_args = 0..=1, default_missing_value = "docs/compare.png")]
    picture: Option<PathBuf>,
}

/// A store by a name, at a URL, and what keeps it running.
struct Store {
    name: &'static str,
    url: String,
    _server: Box<dyn Any>,
}

impl Store {
    fn new(name: &'static str, url: String, server: impl Any) -> Self {
        Self { name, url, _server: Box::new(server) }
    }
}

/// All of them.
fn stores() -> Result<Vec<Store>, String> {
    let folder = test_servers::folder(Disk::Real);
    let redis = RedisServer::start_durable();
    let zookeeper = ZookeeperServers::start_durable();
    let etcd = EtcdCluster::start_durable();
    let postgres = PostgresServer::start_durable(&[]);
    let mariadb = MariaDbServer::start_durable();
    Ok(vec![
        Store::new("SQLite", format!("sqlite:{}", folder.path().join("locks.db").display()), folder),
        Store::new("Redis", redis.url(), redis),
        Store::new("ZooKeeper", zookeeper.url(), zookeeper),
        Store::new("etcd", etcd.url(), etcd),
        Store::new("PostgreSQL", postgres.url(), postgres),
        Store::new("MariaDB", mariadb.url(), mariadb),
    ])
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    cargo(&["build", "--locked", "--release", "-p", "oarlock-cli", "--features", "etcd"])?;
    let stores = stores()?;
    let program = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let mut compare = Command::new(program.join("release/oarlock"));
    compare.args(["compare", "-", "--seconds", &options.seconds.to_string(), "--html"]).arg(&options.html);
    let mut running = compare.stdin(Stdio::piped()).spawn().map_err(|error| format!("oarlock: {error}"))?;
    let urls: String = stores.iter().map(|store| format!("{}={}\n", store.name, store.url)).collect();
    // Dropped at the end of the statement, which is the end of the list.
    let written = running.stdin.take().map(|mut stdin| stdin.write_all(urls.as_bytes()));
    let status = running.wait().map_err(|error| format!("oarlock: {error}"))?;
    if !matches!(written, Some(Ok(()))) || !status.success() {
        return Err(format!("oarlock compare: {status}"));
    }
    println!("written: {}", options.html.display());
    options.picture.as_ref().map_or(Ok(()), |picture| photograph(&options.html, picture))
}

/// Asks nobody outside for anything. The height is that of the plots below for six stores.
const CHROMIUM: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=2",
    "--window-size=880,800",
];

/// Two of the page's plots side by side, as narrow as they are on a phone.
const PICTURE: &str = "<style>
body { display: grid; grid-template-columns: 358px 358px; justify-content: space-between; max-width: none; padding: 2rem 3rem }
h1, h1 + p { grid-column: 1 / -1 }
h2 { margin-top: 1rem }
section, section p, .remarks, .wide svg { display: none }
#eight, #rates { display: block }
.narrow svg { display: block }
</style>";

fn photograph(page: &Path, picture: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("chromium, of the Debian package of that name: {error}");
    let folder = test_servers::folder(Disk::Real);
    let styled = folder.path().join("page.html");
    let whole = fs::read_to_string(page).map_err(failed)?;
    fs::write(&styled, whole.replacen("</head>", &format!("{PICTURE}</head>"), 1)).map_err(failed)?;
    let mut chromium = Command::new("chromium");
    chromium.args(CHROMIUM).arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
    chromium.arg(format!("--screenshot={}", picture.display())).arg(format!("file://{}", styled.display()));
    let status = chromium.stderr(Stdio::null()).status().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(format!("chromium: {status}")) }
}
