//! Values of settings, as they stand in a file, the environment or a URL.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::contract::{Error, ErrorKind, Result};

/// One of a file or of an application's own configuration.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Value {
    Truth(bool),
    Number(i64),
    Text(String),
    List(Vec<Value>),
    Table(BTreeMap<String, Value>),
    /// What no setting is.
    Other(serde::de::IgnoredAny),
}

impl From<toml::Value> for Value {
    fn from(value: toml::Value) -> Self {
        match value {
            toml::Value::Boolean(truth) => Self::Truth(truth),
            toml::Value::Integer(number) => Self::Number(number),
            toml::Value::String(text) => Self::Text(text),
            toml::Value::Array(items) => Self::List(items.into_iter().map(Into::into).collect()),
            toml::Value::Table(table) => {
                Self::Table(table.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
            _ => Self::Other(serde::de::IgnoredAny),
        }
    }
}

impl Value {
    /// As it would stand in a URL.
    pub(super) fn plain(self, key: &str) -> Result<String> {
        Ok(match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
            Self::Truth(truth) => truth.to_string(),
            Self::List(items) => {
                let items: Result<Vec<_>> = items.into_iter().map(|item| item.plain(key)).collect();
                items?.join(",")
            }
            Self::Table(_) | Self::Other(_) => return Err(wrong(key, "it is neither a text nor a number nor a list")),
        })
    }

    /// One of several stores, as a URL: it is one, or a table with a `url` and settings that go behind it.
    pub(super) fn into_url(self) -> Result<String> {
        let Self::Table(mut settings) = self else { return self.plain("stores") };
        let url = settings.remove("url").ok_or_else(|| wrong("stores", "each needs its url"))?.plain("url")?;
        let mut parameters = form_urlencoded::Serializer::new(String::new());
        for (key, value) in settings {
            parameters.append_pair(&key, &value.plain(&key)?);
        }
        let parameters = parameters.finish();
        let and = if parameters.is_empty() {
            ""
        } else if url.contains('?') {
            "&"
        } else {
            "?"
        };
        Ok(format!("{url}{and}{parameters}"))
    }
}

fn wrong(key: &str, what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{key}: {what}"))
}

/// # Errors
/// [`ErrorKind::Invalid`], naming the setting and what it looks like.
pub(super) fn duration(key: &str, value: &str) -> Result<Duration> {
    let told = |_| wrong(key, &format!("{value:?} is not a duration such as 30s or 1m 30s"));
    humantime::parse_duration(value).map_err(told)
}

/// # Errors
/// As [`duration`].
pub(super) fn duration_or_none(key: &str, value: &str) -> Result<Option<Duration>> {
    if value == "none" { Ok(None) } else { duration(key, value).map(Some) }
}

pub(super) fn truth(key: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| wrong(key, &format!("{value:?} is neither true nor false")))
}

pub(super) fn number(key: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| wrong(key, &format!("{value} is not a whole number")))
}

pub(super) fn small(key: &str, value: &str) -> Result<u8> {
    value.parse().map_err(|_| wrong(key, &format!("{value} is not a number from 0 to {}", u8::MAX)))
}
