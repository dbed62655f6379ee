//! The settings that every backend has, and what an application may require of one.

use std::str::FromStr;
use std::sync::Arc;

use crate::api::Locks;
use crate::contract::options::LockOptions;
use crate::contract::{Capabilities, DistributedLock, Error, ErrorKind, Result, Scope};

/// The settings that are the same for every backend. Each may stand in a TOML file, behind the `?` of the URL, or in
/// the environment as `OARLOCK_` and its name in capitals.
pub(super) const SETTINGS: [&str; 12] = [
    "lease",
    "wait",
    "outage",
    "max_hold",
    "fair",
    "hand_overs",
    "hand_over_for",
    "token_floor",
    "prefix",
    "label",
    "require",
    "password_file",
];

/// Which of these was meant by what is none of them, if one is near.
pub(super) fn meant<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|known| (strsim::damerau_levenshtein(written, known), known));
    near.min_by_key(|&(distance, _)| distance).filter(|&(distance, _)| distance <= 2).map(|(_, known)| known)
}

/// What an application needs of its backend: `require = ["fencing", "fair"]` refuses at the start one that cannot do
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Requirement {
    /// `fencing`: tokens that rise. Every backend of this contract has them.
    Fencing,
    /// `fair`: first come, first served across processes.
    Fair,
    /// `host`: excludes the other processes of the host.
    Host,
    /// `network`: excludes processes on other hosts.
    Network,
    /// `prompt_loss`: an eviction is noticed at once.
    PromptLoss,
}

const REQUIREMENTS: [(&str, Requirement); 5] = [
    ("fencing", Requirement::Fencing),
    ("fair", Requirement::Fair),
    ("host", Requirement::Host),
    ("network", Requirement::Network),
    ("prompt_loss", Requirement::PromptLoss),
];

impl FromStr for Requirement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = REQUIREMENTS.iter().find(|(name, _)| *name == text);
        found.map(|&(_, requirement)| requirement).ok_or_else(|| {
            let known = REQUIREMENTS.map(|(name, _)| name).join(", ");
            Error::new(ErrorKind::Invalid, format!("nothing called {text:?} can be required; there are {known}"))
        })
    }
}

impl Requirement {
    fn is_met(self, by: &Capabilities) -> bool {
        match self {
            Self::Fencing => true,
            Self::Fair => by.fair,
            Self::Host => by.scope >= Scope::Host,
            Self::Network => by.scope >= Scope::Network,
            Self::PromptLoss => by.prompt_loss,
        }
    }
}

/// What of a config is the core's.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) options: LockOptions,
    pub(super) label: Option<String>,
    pub(super) require: Vec<Requirement>,
}

impl Settings {
    pub(super) fn build(self, backend: Arc<dyn DistributedLock>) -> Result<Locks> {
        let capabilities = backend.capabilities();
        for requirement in self.require {
            if !requirement.is_met(&capabilities) {
                let (name, _) = REQUIREMENTS.iter().find(|(_, known)| *known == requirement).expect("all are listed");
                let message = format!("{name:?} is required, and the backend {} cannot do it", capabilities.backend);
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        let mut builder = Locks::builder(backend).with_options(self.options);
        if let Some(label) = self.label {
            builder = builder.label(label);
        }
        builder.build()
    }
}
