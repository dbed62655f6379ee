//! The scripts: each decision about a lock is one, which Redis runs as a whole. What they take and answer stands at the
//! head of each file.

use std::sync::LazyLock;

/// A script and the hash by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: &'static str,
    pub(crate) hash: String,
}

macro_rules! script {
    ($($file:literal)*) => {
        script!(= $(include_str!(concat!("scripts/", $file))),*)
    };
    (= $($part:expr),*) => {
        LazyLock::new(|| {
            let source = concat!($($part),*);
            Script { source, hash: redis::Script::new(source).get_hash().to_owned() }
        })
    };
}

pub(crate) static ACQUIRE: LazyLock<Script> = script!("common.lua" "modes.lua" "acquire.lua");
pub(crate) static ACQUIRE_SHOWING: LazyLock<Script> = script!(=
    include_str!("scripts/common.lua"),
    include_str!("scripts/modes.lua"),
    "local function acquire()\n",
    include_str!("scripts/acquire.lua"),
    "end\n",
    include_str!("scripts/show.lua")
);
pub(crate) static ACQUIRE_ALL: LazyLock<Script> = script!("common.lua" "acquire_all.lua");
pub(crate) static RESERVE: LazyLock<Script> = script!("reserve.lua");
pub(crate) static RELEASE: LazyLock<Script> = script!("release_free.lua" "common.lua" "modes.lua" "release.lua");
pub(crate) static LOOK: LazyLock<Script> = script!("common.lua" "modes.lua" "look.lua");
pub(crate) static RENEW: LazyLock<Script> = script!("renew.lua");
pub(crate) static ACQUIRE_MODE: LazyLock<Script> =
    script!("common.lua" "acquire_mode_free.lua" "modes.lua" "acquire_mode.lua");
pub(crate) static RELEASE_MODE: LazyLock<Script> =
    script!("release_mode_free.lua" "common.lua" "modes.lua" "release_mode.lua");
pub(crate) static RENEW_MODES: LazyLock<Script> = script!("common.lua" "modes.lua" "renew_modes.lua");
pub(crate) static RESIZE: LazyLock<Script> = script!("common.lua" "modes.lua" "resize.lua");
pub(crate) static KEEP: LazyLock<Script> = script!("keep.lua");
pub(crate) static PROCLAIM: LazyLock<Script> = script!("proclaim.lua");
pub(crate) static RAISE: LazyLock<Script> = script!("common.lua" "raise.lua");
pub(crate) static RECORD: LazyLock<Script> = script!("record.lua");
pub(crate) static INSPECT: LazyLock<Script> = script!("inspect.lua");
