//! The files of TLS.

use std::fs;
use std::path::{Path, PathBuf};

use crate::connect::Params;
use crate::contract::{Error, ErrorKind, Result};

/// The files, in PEM form, by which TLS knows whom to trust and who we are. They are read when they are needed.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// The certificates that sign those of the servers.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// Takes the settings `ca`, `cert` and `key`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if only one of `cert` and `key` is there.
    pub fn take(params: &mut Params) -> Result<Self> {
        let identity = params.take_both(["cert", "key"])?.map(|(certificate, key)| (certificate.into(), key.into()));
        Ok(Self { ca: params.take("ca").map(PathBuf::from), identity })
    }

    /// What is in the file of the CA, if there is one.
    ///
    /// # Errors
    /// As [`read_file`].
    pub fn read_ca(&self) -> Result<Option<String>> {
        self.ca.as_ref().map(|file| read_file("ca", file)).transpose()
    }

    /// Our certificate and its key, if we have them.
    ///
    /// # Errors
    /// As [`read_file`].
    pub fn read_identity(&self) -> Result<Option<(String, String)>> {
        let Some((certificate, key)) = &self.identity else { return Ok(None) };
        Ok(Some((read_file("cert", certificate)?, read_file("key", key)?)))
    }

    /// For connections without TLS: somebody who names files believes to be safe, and is not.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the scheme of URLs with TLS, if there are any files.
    pub fn refuse(&self, scheme: &str) -> Result<()> {
        if self.ca.is_none() && self.identity.is_none() {
            return Ok(());
        }
        let message = format!("ca, cert and key are for TLS; use a URL that begins with {scheme}:");
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

/// Reads the file that a setting names. It may have remarks in it that are not UTF-8: they come out changed.
///
/// # Errors
/// [`ErrorKind::Invalid`], naming the setting and the file, if it cannot be read.
pub fn read_file(setting: &str, file: &Path) -> Result<String> {
    let read = fs::read(file).map_err(|error| {
        let message = format!("{setting}: the file {} cannot be read; check its path and its rights", file.display());
        Error::new(ErrorKind::Invalid, message).with_source(error)
    })?;
    Ok(String::from_utf8_lossy(&read).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(settings: &[(&str, &str)]) -> Result<TlsFiles> {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        TlsFiles::take(&mut Params(settings.collect()))
    }

    #[test]
    fn files_are_named_by_settings_and_refused_without_tls() {
        let files = taken(&[("ca", "/nowhere/ca"), ("cert", "/nowhere/c"), ("key", "/nowhere/k")]).unwrap();
        for error in [files.read_ca().unwrap_err(), files.read_identity().unwrap_err()] {
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("/nowhere/c"), "{error}");
        }
        assert!(files.refuse("rediss").unwrap_err().to_string().contains("rediss:"));
        assert!(taken(&[("cert", "c")]).is_err());
        let none = taken(&[]).unwrap();
        none.refuse("rediss").unwrap();
        assert!(none.read_ca().unwrap().is_none() && none.read_identity().unwrap().is_none());
    }
}
