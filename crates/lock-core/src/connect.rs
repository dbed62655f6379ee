//! From a text, a URL or a config, to the locks of a store.

mod both;
mod config;
mod factory;
mod limits;
mod memory;
mod registry;
mod servers;
mod settings;
mod url;
mod value;

pub use config::Config;
pub use factory::{BackendFactory, Target};
pub use limits::{check_prefix, check_timeout};
pub use registry::Registry;
pub use servers::{HostPort, OneServer, Servers, invalid_url};
pub use settings::Requirement;
pub use url::{BackendUrl, Params};
