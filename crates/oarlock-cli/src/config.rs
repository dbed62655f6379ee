//! Which backend: the command line before the environment before the config file before the embedded default.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use oarlock::{BackendUrl, Config, ErrorKind, Locks, Scope};

use crate::args::Settings;
use crate::exit::{CONFIG, Failure, told};
use crate::output;

/// Between two attempts to connect to a store that is away.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints what makes the store's tables, and asks no store.
pub(crate) fn schema(settings: &Settings, url: Option<&str>) -> Result<u8, Failure> {
    let mut config = choose(settings, None)?;
    if let Some(url) = url {
        config = config.overlay(Config::from_url(url).map_err(|error| Failure::config(&error))?);
    }
    output::print(&oarlock::registry().schema(config).map_err(|error| Failure::config(&error))?)?;
    Ok(0)
}

/// Connects to what was chosen.
pub(crate) async fn connect(settings: &Settings, config: Config) -> Result<Locks, Failure> {
    let locks = oarlock::connect_with(config).await.map_err(|error| Failure::config(&error))?;
    usable(settings, locks)
}

/// The same for one that waits for a store that is away: it says so, and tries on.
///
/// # Errors
/// What another attempt would not change: a wrong configuration, and what the store refuses.
pub(crate) async fn connect_in_the_end(settings: &Settings, config: Config) -> Result<Locks, Failure> {
    let mut said = String::new();
    loop {
        let error = match oarlock::connect_with(config.clone()).await {
            Ok(locks) if said.is_empty() => return usable(settings, locks),
            Ok(locks) => {
                output::say("the store is there now");
                return usable(settings, locks);
            }
            Err(error) => error,
        };
        if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) {
            return Err(Failure::config(&error));
        }
        let message = format!("{}; trying on until the store is there", told(&error));
        // Once, and not at each attempt.
        if message != said {
            output::say(&message);
            said = message;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn usable(settings: &Settings, locks: Locks) -> Result<Locks, Failure> {
    if locks.capabilities().scope == Scope::Process {
        // Each run of this program is a process of its own: nothing would be locked.
        let message = format!(
            "{} excludes only tasks of its own process; name another store, such as sqlite:",
            locks.capabilities().backend
        );
        return Err(Failure::new(CONFIG, message));
    }
    if settings.verbose > 0 {
        output::say(format!("connected to {}", locks.capabilities().backend));
    }
    Ok(locks)
}

/// `label` names the holder where no configuration does.
pub(crate) fn choose(settings: &Settings, label: Option<String>) -> Result<Config, Failure> {
    let mut config = Config::from_url(oarlock::DEFAULT_URL).map_err(|error| Failure::config(&error))?;
    let mut origin = "the embedded default".to_owned();
    for (layer, source) in layers(settings, label)? {
        if layer.url().is_some() {
            origin = source;
        }
        config = config.overlay(layer);
    }
    if settings.verbose > 0
        && let Some(url) = config.url()
    {
        output::say(format!("using {} ({origin})", in_full(url)));
    }
    Ok(config)
}

/// The URL, without its secrets. The embedded default names no file: there it is the one that is used.
fn in_full(url: &BackendUrl) -> String {
    let url = url.to_string();
    #[cfg(feature = "sqlite")]
    if url == oarlock::DEFAULT_URL
        && let Ok(path) = oarlock::sql::default_path()
    {
        return format!("{url}{}", path.display());
    }
    url
}

/// The layers above the default, the strongest last, and where each comes from.
fn layers(settings: &Settings, label: Option<String>) -> Result<Vec<(Config, String)>, Failure> {
    let mut layers = Vec::new();
    let mut add = |layer: oarlock::Result<Config>, source: String| match layer {
        Ok(layer) => {
            layers.push((layer, source));
            Ok(())
        }
        Err(error) => Err(Failure::config(&error)),
    };
    if let Some(label) = label {
        add(Ok(Config::default().label(label)), "the command's name".to_owned())?;
    }
    if let Some(file) = settings.config.clone().or_else(|| own_file().filter(|file| file.exists())) {
        add(Config::from_file(&file), format!("the config file {}", file.display()))?;
    }
    add(Config::from_env(env::vars_os()), "the environment".to_owned())?;
    if let Some(url) = &settings.url {
        add(Config::from_url(url), "--url".to_owned())?;
    }
    Ok(layers)
}

/// The user's config file, there or not. The specification of XDG asks to ignore relative paths.
fn own_file() -> Option<PathBuf> {
    let absolute = |variable| env::var_os(variable).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("oarlock/config.toml"))
}
