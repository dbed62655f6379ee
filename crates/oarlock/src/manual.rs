#![doc = include_str!("manual/links.md")]
#![doc = include_str!("manual/README.md")]

// The pages are files in `docs/manual`; those in `manual/` are symbolic links to them, so that a package of this crate
// has them too. A page names its links, such as `[fencing]`, and says at its end which file each name leads to.
// `links.md` says what the same names mean in rustdoc. It comes first, and the first of two definitions counts.

macro_rules! pages {
    ($($name:ident: $file:literal),+ $(,)?) => {$(
        #[doc = include_str!("manual/links.md")]
        #[doc = include_str!(concat!("manual/", $file))]
        pub mod $name {}
    )+};
}

pages! {
    start: "start.md",
    primitives: "primitives.md",
    promises: "promises.md",
    stores: "stores.md",
    sqlite: "sqlite.md",
    redis: "redis.md",
    zookeeper: "zookeeper.md",
    etcd: "etcd.md",
    postgres: "postgres.md",
    postgres_sessions: "postgres-sessions.md",
    mysql: "mysql.md",
    mysql_sessions: "mysql-sessions.md",
    memcached: "memcached.md",
    shedlock: "shedlock.md",
    quorum: "quorum.md",
    changing_stores: "changing-stores.md",
    moving_fleet: "moving-fleet.md",
    waiting: "waiting.md",
    losing: "losing.md",
    fencing: "fencing.md",
    once_and_elections: "once-and-elections.md",
    configuration: "configuration.md",
    errors: "errors.md",
    testing: "testing.md",
    moving: "moving.md",
    program: "program.md",
    operating: "operating.md",
}
