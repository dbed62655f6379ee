//! TLS: whom to trust, and who we are.

use lock_core::{Error, Result, TlsFiles};

#[cfg(feature = "tls")]
pub(crate) use with::{Tls, explain};

#[cfg(feature = "tls")]
mod with {
    use std::io;
    use std::sync::Arc;

    use lock_core::ErrorKind;
    use rustls::pki_types::pem::{self, PemObject};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, crypto};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    use super::*;
    use crate::address::Address;

    pub(crate) struct Tls(TlsConnector);

    impl Tls {
        /// With this CA, or the system's, and TLS 1.2 or later. The provider of cryptography is ours alone: none is
        /// installed for the process, and none that was has a say.
        pub(crate) fn new(files: &TlsFiles) -> Result<Self> {
            let unusable = |error: rustls::Error| invalid("TLS cannot be set up").with_source(error);
            let provider = Arc::new(crypto::aws_lc_rs::default_provider());
            let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let config = config.map_err(unusable)?.with_root_certificates(roots(files)?);
            let config = match files.read_identity()? {
                None => config.with_no_client_auth(),
                Some((certificate, key)) => {
                    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| no_pem("key", error))?;
                    let own = config.with_client_auth_cert(certificates("cert", &certificate)?, key);
                    own.map_err(|error| invalid("the certificate and the key do not fit together").with_source(error))?
                }
            };
            Ok(Self(TlsConnector::from(Arc::new(config))))
        }

        /// The server proves that it is this host.
        pub(crate) async fn secure(
            &self,
            stream: TcpStream,
            host: &str,
            address: &Address,
        ) -> Result<TlsStream<TcpStream>> {
            let name = ServerName::try_from(host.to_owned());
            let name = name.map_err(|error| invalid(&format!("{host:?} is no host's name")).with_source(error))?;
            self.0.connect(name, stream).await.map_err(|error| {
                let why = explain(&error).unwrap_or("the connection broke while TLS was agreed on; does it speak TLS?");
                let message = format!("the server {address}: {why}");
                // The server was asked nothing yet; what will not change by trying again is a refusal.
                let refused = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
                let kind = if refused { ErrorKind::Refused } else { ErrorKind::Unavailable };
                Error::new(kind, message).with_source(error)
            })
        }
    }

    /// What to do about an error of TLS, if it is one.
    pub(crate) fn explain(error: &io::Error) -> Option<&'static str> {
        use AlertDescription::{
            AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateUnknown, DecryptError,
            HandshakeFailure, UnknownCA, UnsupportedCertificate,
        };
        use CertificateError::{BadSignature, NotValidForName, NotValidForNameContext, UnknownIssuer};
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match error {
            rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature) => {
                "its certificate is signed by nobody who is trusted here; name its CA with the setting ca"
            }
            rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
                "its certificate is that of another host; check the address"
            }
            rustls::Error::InvalidCertificate(_) => "its certificate is not valid",
            rustls::Error::InvalidMessage(_) => "it does not speak TLS; check the port, or use a URL without TLS",
            rustls::Error::AlertReceived(
                CertificateRequired
                | BadCertificate
                | CertificateUnknown
                | UnknownCA
                | UnsupportedCertificate
                | CertificateExpired
                | AccessDenied
                | DecryptError
                | HandshakeFailure,
            ) => "it refuses our certificate, or wants one; name it with the settings cert and key",
            _ => "TLS could not be agreed on",
        })
    }

    fn invalid(wrong: &str) -> Error {
        Error::new(ErrorKind::Invalid, wrong)
    }

    /// The certificates in the text of a setting's file.
    fn certificates(setting: &str, text: &str) -> Result<Vec<CertificateDer<'static>>> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let read = read.map_err(|error| no_pem(setting, error))?;
        if read.is_empty() {
            return Err(invalid(&format!("{setting}: the file has no certificate in it")));
        }
        Ok(read)
    }

    fn no_pem(setting: &str, error: pem::Error) -> Error {
        invalid(&format!("{setting}: the file cannot be read as PEM")).with_source(error)
    }

    fn roots(files: &TlsFiles) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let Some(ca) = files.read_ca()? else {
            // What cannot be read among the system's trusts nobody; that a server is not trusted is told when it is
            // asked.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return Ok(roots);
        };
        for certificate in certificates("ca", &ca)? {
            let added = roots.add(certificate);
            added.map_err(|error| invalid("ca: the file has no usable certificate in it").with_source(error))?;
        }
        Ok(roots)
    }
}

#[cfg(not(feature = "tls"))]
pub(crate) use without::{Tls, explain};

#[cfg(not(feature = "tls"))]
mod without {
    use std::convert::Infallible;
    use std::io;

    use tokio::net::TcpStream;

    use super::*;
    use crate::address::Address;

    pub(crate) struct Tls(Infallible);

    impl Tls {
        pub(crate) fn new(_: &TlsFiles) -> Result<Self> {
            Err(Error::not_built_in("TLS", "tls"))
        }

        pub(crate) async fn secure(&self, _: TcpStream, _: &str, _: &Address) -> Result<TcpStream> {
            match self.0 {}
        }
    }

    pub(crate) fn explain(_: &io::Error) -> Option<&'static str> {
        None
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use lock_core::{Config, ErrorKind, Registry};
    use test_servers::Authority;

    use crate::{RedisFactory, RedisOptions};

    #[tokio::test]
    async fn what_cannot_be_is_refused() {
        let authority = Authority::new();
        let known = authority.issue("known");
        let (certificate, key) = (known.certificate.display(), known.key.display());
        let other = authority.issue("other").key;
        for (url, why) in [
            ("rediss://h?ca=/nowhere.pem".to_owned(), "/nowhere.pem"),
            (format!("rediss://h?ca={key}"), "no certificate"),
            (format!("rediss://h?cert={certificate}"), "one needs the other"),
            (format!("rediss://h?cert={certificate}&key={}", other.display()), "fit together"),
            (format!("redis://h?ca={certificate}"), "rediss"),
            ("redis://h?tls=yes".to_owned(), "tls"),
        ] {
            let mut registry = Registry::new();
            registry.register(RedisFactory);
            let error = registry.connect(Config::from_url(&url).unwrap()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
            assert!(error.to_string().contains(why), "{error:?}");
        }
        let options = RedisOptions::new("rediss://h").unwrap().ca("/nowhere.pem");
        assert_eq!(options.connect().await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}
