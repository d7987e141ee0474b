//! Who to be at a server, and by which certificates to trust it. What is in files is read when it is needed.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use redis::{ClientTlsConfig, TlsCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tenure_store::StoreError;

/// How to get at a server, wherever it is.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) username: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) database: u32,
    pub(super) tls: Option<Tls>,
}

/// Encrypted, with these PEM files.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Tls {
    /// The authorities that are trusted; those of the system if not given.
    pub(super) ca: Option<PathBuf>,
    /// The certificate to show, and its private key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

/// A secret, or where it is. It has no `Debug` that could show it.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Secret {
    Text(String),
    File(PathBuf),
    Variable(String),
}

/// What is read from a file is no longer than this: a bundle of all public authorities has about 200 KiB.
const LONGEST_FILE: u64 = 4 << 20;

impl Secret {
    /// The secret itself.
    pub(super) fn reveal(&self) -> Result<String, StoreError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => {
                let what = "the password";
                let refuse = |problem: &dyn fmt::Display| unreadable(what, path, problem);
                let text = String::from_utf8(read(what, path)?).map_err(|_| refuse(&"it is not UTF-8"))?;
                // Editors and `echo` end a line; the password has none.
                let text = text.strip_suffix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                if text.is_empty() { Err(refuse(&"it is empty")) } else { Ok(text.to_owned()) }
            }
            Self::Variable(name) => match env::var(name) {
                Ok(text) if !text.is_empty() => Ok(text),
                Ok(_) | Err(env::VarError::NotPresent) => Err(StoreError::rejected(format!(
                    "the password is to be in the environment variable {name:?}, which is not set"
                ))),
                Err(env::VarError::NotUnicode(_)) => Err(StoreError::rejected(format!(
                    "the password in the environment variable {name:?} is not UTF-8"
                ))),
            },
        }
    }
}

impl Tls {
    /// The files' contents, as the client library takes them. `None` if there are none.
    pub(super) fn certificates(&self) -> Result<Option<TlsCertificates>, StoreError> {
        if self.ca.is_none() && self.identity.is_none() {
            return Ok(None);
        }
        let root_cert = self.ca.as_deref().map(|path| certificates("the authorities", path)).transpose()?;
        let client_tls = match &self.identity {
            None => None,
            Some((certificate, key)) => Some(ClientTlsConfig {
                client_cert: certificates("the certificate", certificate)?,
                client_key: private_key(key)?,
            }),
        };
        Ok(Some(TlsCertificates { client_tls, root_cert }))
    }
}

/// The content of a file with certificates.
fn certificates(what: &str, path: &Path) -> Result<Vec<u8>, StoreError> {
    let content = read(what, path)?;
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(&content) {
        certificate.map_err(|error| unreadable(what, path, &format!("it is no good PEM: {error}")))?;
        found += 1;
    }
    if found == 0 {
        return Err(unreadable(what, path, &"there is no certificate in it, in the format PEM"));
    }
    Ok(content)
}

fn private_key(path: &Path) -> Result<Vec<u8>, StoreError> {
    let what = "the private key";
    let content = read(what, path)?;
    // What the library says of a bad key is no part of the key.
    match rustls::pki_types::PrivateKeyDer::from_pem_slice(&content) {
        Ok(_) => Ok(content),
        Err(_) => {
            Err(unreadable(what, path, &"there is no unencrypted private key in it, in the format PEM"))
        }
    }
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, StoreError> {
    let mut content = Vec::new();
    let mut file = File::open(path).map_err(|error| unreadable(what, path, &error))?.take(LONGEST_FILE + 1);
    let length = file.read_to_end(&mut content).map_err(|error| unreadable(what, path, &error))?;
    if length as u64 > LONGEST_FILE {
        return Err(unreadable(what, path, &format!("it is longer than {LONGEST_FILE} bytes")));
    }
    Ok(content)
}

fn unreadable(what: &str, path: &Path, problem: &dyn fmt::Display) -> StoreError {
    StoreError::rejected(format!("can't read {what} from {}: {problem}", path.display()))
}
