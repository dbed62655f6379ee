//! Certificates for tests.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use watchdog::{Disk, folder};

/// A CA of a test's own, with its files. Dropping it removes them.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM files.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

impl Authority {
    /// A new one.
    pub fn new() -> Self {
        let mut parameters = CertificateParams::new([]).expect("no names");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        // Two of the same name would be taken for one whose signature is wrong.
        let folder = folder(Disk::Memory);
        parameters.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
        let issuer = CertifiedIssuer::self_signed(parameters, key).expect("a CA");
        let this = Self { folder, issuer };
        write(&this.file(), &this.issuer.pem());
        this
    }

    /// The file of its own certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for a host, or for a client of this name.
    pub fn issue(&self, name: &str) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new([name.to_owned()]).expect("a name");
        parameters.distinguished_name.push(DnType::CommonName, name);
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |kind: &str| self.folder.path().join(format!("{name}.{kind}.pem"));
        let issued = Certificate { certificate: file("certificate"), key: file("key") };
        write(&issued.certificate, &certificate.pem());
        write(&issued.key, &key.serialize_pem());
        issued
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file");
}
