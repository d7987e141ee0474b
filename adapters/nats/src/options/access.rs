//! Who to be at a server, and by which certificates to trust it. What is in files is read when it is needed.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use async_nats::Auth;

/// How to get at a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(super) login: Login,
    pub(crate) tls: Option<Tls>,
}

/// Who to be.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) enum Login {
    #[default]
    Nobody,
    User(String, Secret),
    Token(Secret),
    /// The file has a JWT and the seed of a key.
    Credentials(PathBuf),
    /// The seed of a key.
    Nkey(Secret),
}

/// Encrypted, with these PEM files.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The authorities that are trusted; those of the system if not given.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate to show, and its private key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// A secret, or where it is. It has no `Debug` that could show it.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Secret {
    Text(String),
    File(PathBuf),
    Variable(String),
}

/// What is read from a file is no longer than this.
const LONGEST_FILE: u64 = 1 << 20;

impl Access {
    /// What to say to a server that wants this signed. The error is for people.
    pub(crate) fn auth(&self, nonce: &[u8]) -> Result<Auth, String> {
        let mut auth = Auth::new();
        match &self.login {
            Login::Nobody => {}
            Login::User(name, password) => {
                auth.username = Some(name.clone());
                auth.password = Some(password.reveal("the password")?);
            }
            Login::Token(token) => auth.token = Some(token.reveal("the token")?),
            Login::Credentials(path) => {
                let what = "the credentials";
                let text = read(what, path)?;
                let refuse = |problem: &str| unreadable(what, path, &problem);
                let jwt = between(&text, "USER JWT").ok_or_else(|| refuse("there is no JWT in it"))?;
                let seed = between(&text, "NKEY SEED").ok_or_else(|| refuse("there is no seed in it"))?;
                let (_, signature) = signed(seed, nonce).ok_or_else(|| refuse("its seed is none"))?;
                (auth.jwt, auth.signature) = (Some(jwt.to_owned()), Some(signature));
            }
            Login::Nkey(seed) => {
                let seed = seed.reveal("the seed of the key")?;
                // What the library says of a bad seed is not shown.
                let (public, signature) =
                    signed(seed.trim(), nonce).ok_or("the seed of the key is none: it begins with SU")?;
                (auth.nkey, auth.signature) = (Some(public), Some(signature));
            }
        }
        Ok(auth)
    }
}

/// The public key of a seed, and what the server wants signed with it.
fn signed(seed: &str, nonce: &[u8]) -> Option<(String, Vec<u8>)> {
    let pair = nkeys::KeyPair::from_seed(seed).ok()?;
    let signature = pair.sign(nonce).ok()?;
    Some((pair.public_key(), signature))
}

/// The line after the one that begins this part of a file with credentials.
fn between<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("-----BEGIN") && line.contains(part))?;
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with('-'))
}

impl Secret {
    /// The secret itself.
    fn reveal(&self, what: &str) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => {
                let text = read(what, path)?;
                // Editors and `echo` end a line; the secret has none.
                let text = text.strip_suffix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                if text.is_empty() {
                    Err(unreadable(what, path, &"it is empty"))
                } else {
                    Ok(text.to_owned())
                }
            }
            Self::Variable(name) => match env::var(name) {
                Ok(text) if !text.is_empty() => Ok(text),
                Ok(_) | Err(env::VarError::NotPresent) => {
                    Err(format!("{what} is to be in the environment variable {name:?}, which is not set"))
                }
                Err(env::VarError::NotUnicode(_)) => {
                    Err(format!("{what} in the environment variable {name:?} is not UTF-8"))
                }
            },
        }
    }
}

fn read(what: &str, path: &Path) -> Result<String, String> {
    let mut content = Vec::new();
    let mut file = File::open(path).map_err(|error| unreadable(what, path, &error))?.take(LONGEST_FILE + 1);
    let length = file.read_to_end(&mut content).map_err(|error| unreadable(what, path, &error))?;
    if length as u64 > LONGEST_FILE {
        return Err(unreadable(what, path, &format!("it is longer than {LONGEST_FILE} bytes")));
    }
    String::from_utf8(content).map_err(|_| unreadable(what, path, &"it is not UTF-8"))
}

fn unreadable(what: &str, path: &Path, problem: &dyn fmt::Display) -> String {
    format!("can't read {what} from {}: {problem}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_file_with_credentials_are_found() {
        let text = "-----BEGIN NATS USER JWT-----\neyJ0.x\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\n\
                    -----BEGIN USER NKEY SEED-----\r\nSUAX\r\n------END USER NKEY SEED------\n";
        assert_eq!(between(text, "USER JWT"), Some("eyJ0.x"));
        assert_eq!(between(text, "NKEY SEED"), Some("SUAX"));
        assert_eq!(between("-----BEGIN USER NKEY SEED-----\n------END", "NKEY SEED"), None);
        assert_eq!(between("", "NKEY SEED"), None);
    }

    #[test]
    fn what_is_signed_is_signed_by_the_seed_and_a_bad_one_is_not_shown() {
        let pair = nkeys::KeyPair::new_user();
        let seed = pair.seed().unwrap();
        let login = |seed: &str| Access { login: Login::Nkey(Secret::Text(seed.to_owned())), tls: None };
        let auth = login(&seed).auth(b"nonce").unwrap();
        assert_eq!(auth.nkey, Some(pair.public_key()));
        pair.verify(b"nonce", &auth.signature.unwrap()).unwrap();
        let error = login("SUsecret").auth(b"nonce").map(|_| ()).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}
