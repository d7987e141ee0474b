//! Where the store is and how it behaves: settings, URLs, the default path.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use tenure_store::core::ConfigError;
use tenure_store::url::{parameters, percent_decode};

/// The settings of a [`SqliteStore`](crate::SqliteStore).
///
/// ```
/// # use tenure_sqlite::{SqliteOptions, SqliteStore};
/// let options = SqliteOptions::new("/var/lib/example/leases.db")?.early(false);
/// let store = SqliteStore::new(options);
/// # Ok::<(), tenure_store::core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Absolute.
    pub(crate) path: PathBuf,
    pub(crate) early: bool,
    pub(crate) any_filesystem: bool,
    /// Whether missing folders above the file are created.
    pub(crate) create_folders: bool,
}

/// What the URL of such a store begins with.
const SCHEME: &str = "sqlite";

impl SqliteOptions {
    /// For the database at this path, with the defaults. A relative path is taken from the folder that is
    /// the current one now. The file is created when it is missing; its folder must exist.
    ///
    /// # Errors
    /// [`ConfigError`] for a path that can't name a file.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let refuse = |rule: &str| {
            Err(ConfigError::new("the path of the store", format!("{path:?}"), format!("must {rule}")))
        };
        if path.as_os_str().is_empty() {
            return refuse("not be empty");
        }
        if path.as_os_str().as_bytes().contains(&0) {
            return refuse("not contain a zero byte");
        }
        if path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/") {
            return refuse("name a file, not a folder");
        }
        let Ok(path) = std::path::absolute(path) else {
            return refuse("be absolute, since the current folder can't be told");
        };
        Ok(Self { path, early: true, any_filesystem: false, create_folders: false })
    }

    /// For a URL: `sqlite:/path/to/file.db`, optionally with `?early=off` (see [`early`](Self::early)) and
    /// `fs=any` (see [`any_filesystem`](Self::any_filesystem)), joined by `&`.
    ///
    /// `sqlite:///path` is the same, `sqlite:file.db` is relative to the current folder. Characters that mean
    /// something in a URL (`%`, `?`, `#`) are written percent-encoded.
    ///
    /// # Errors
    /// [`ConfigError`] says which part is wrong.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let refuse = |rule: String| {
            Err(ConfigError::new("the store's URL", format!("{:?}", shown(url)), format!("must {rule}")))
        };
        let rest = match split_scheme(url) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => rest,
            _ => return refuse("begin with sqlite:".to_owned()),
        };
        if rest.contains('#') {
            return refuse("have no fragment; write # in a path as %23".to_owned());
        }
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let path = match path.strip_prefix("//") {
            Some(path) if path.starts_with('/') => path,
            Some(_) => return refuse("name no host; write sqlite:/path or sqlite:///path".to_owned()),
            None => path,
        };
        let Some(path) = percent_decode(path) else {
            return refuse("have % only before two hexadecimal digits; write % itself as %25".to_owned());
        };
        let mut options = Self::new(PathBuf::from(OsString::from_vec(path)))?;
        let parameters = match parameters(query.unwrap_or_default()) {
            Ok(parameters) => parameters,
            Err(key) => return refuse(format!("give {key} only once")),
        };
        for (key, value) in parameters {
            match (key, value) {
                ("early", "on") => options.early = true,
                ("early", "off") => options.early = false,
                ("early", _) => return refuse("have early=on or early=off".to_owned()),
                ("fs", "any") => options.any_filesystem = true,
                ("fs", "local") => options.any_filesystem = false,
                ("fs", _) => return refuse("have fs=local or fs=any".to_owned()),
                _ => return refuse(format!("not have the parameter {key:?}; there are early and fs")),
            }
        }
        Ok(options)
    }

    /// For a program of this name: `$XDG_STATE_HOME/tenure/<app>.db`, or `$HOME/.local/state/tenure/<app>.db`
    /// if `XDG_STATE_HOME` is not set. All programs of one user that give the same name share it. Missing
    /// folders are created, for the user alone.
    ///
    /// There is no other default: a store in a shared temporary folder could be anybody's.
    ///
    /// # Errors
    /// [`ConfigError`] if neither variable is set, if the one that counts is not an absolute path, or if the
    /// name has other characters than letters, digits, `-`, `_` and `.`, or more than 100 of them.
    pub fn for_app(app: &str) -> Result<Self, ConfigError> {
        let path = app_path(app, env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))?;
        Ok(Self { create_folders: true, ..Self::new(path)? })
    }

    /// Whether a lease passes on at once when its holder's process has died, without waiting for the TTL.
    /// Default: yes.
    ///
    /// It rests on a lock that the kernel frees when the process ends, and so proves the death of that
    /// process, **not of its children**: what it had started may still run, and the lock may be free some
    /// milliseconds before their parent-death signal arrives. If the work is done by child processes that
    /// may outlive their parent, switch it off, or let something that dies after them hold the lock too
    /// ([`SqliteStore::liveness`](crate::SqliteStore::liveness)). A handle with `early` off neither offers
    /// such a proof nor asks for one.
    #[must_use]
    pub const fn early(mut self, early: bool) -> Self {
        self.early = early;
        self
    }

    /// Whether file systems are accepted that are not known to be local. Default: no.
    ///
    /// Only set it for a local file system that this crate doesn't know, or one that a **single** machine
    /// uses: leases are on a machine's own clock, and SQLite's locks and shared memory don't work between
    /// machines. Two machines on one file would both be given the lease.
    #[must_use]
    pub const fn any_filesystem(mut self, any: bool) -> Self {
        self.any_filesystem = any;
        self
    }

    /// The path of the database, absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The scheme of a URL and what follows it.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    url.split_once(':').filter(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// A URL as an error may show it. Where a host could stand, a user and a password could stand too, so of such a
/// URL, and of one for another store, only the scheme is shown.
fn shown(url: &str) -> String {
    match split_scheme(url) {
        Some((scheme, path))
            if scheme.eq_ignore_ascii_case(SCHEME)
                && (!path.starts_with("//") || path.starts_with("///")) =>
        {
            url.to_owned()
        }
        Some((scheme, _)) => format!("{scheme}:…"),
        None => "…".to_owned(),
    }
}

/// The longest name of a program: a file name has at most 255 bytes, and suffixes are added.
const LONGEST_APP: usize = 100;

fn app_path(app: &str, state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, ConfigError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if app.is_empty() || app.len() > LONGEST_APP || app.starts_with('.') || !app.chars().all(allowed) {
        return Err(ConfigError::new(
            "the program's name",
            format!("{app:?}"),
            format!("must have 1 to {LONGEST_APP} letters, digits, -, _ or ., and not begin with a dot"),
        ));
    }
    // An empty variable counts as not set, as the XDG base directory specification has it.
    let set = |value: Option<OsString>| value.filter(|value| !value.is_empty());
    let absolute = |field, value: &OsStr| {
        let path = PathBuf::from(value);
        if path.is_absolute() {
            return Ok(path);
        }
        Err(ConfigError::new(field, format!("{value:?}"), "must be an absolute path".to_owned()))
    };
    let state = match (set(state), set(home)) {
        (Some(state), _) => absolute("XDG_STATE_HOME", &state)?,
        (None, Some(home)) => absolute("HOME", &home)?.join(".local/state"),
        (None, None) => {
            return Err(ConfigError::new(
                "XDG_STATE_HOME",
                "not set".to_owned(),
                "must be an absolute path, or HOME must: where to keep the store can't be told; set one of \
                 them, or give the path of the store"
                    .to_owned(),
            ));
        }
    };
    Ok(state.join("tenure").join(format!("{app}.db")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_the_path_percent_decoded_and_the_settings() {
        let options = SqliteOptions::from_url("sqlite:/a%20b/%C3%A9%23%3F%25.db?early=off&fs=any").unwrap();
        assert_eq!(options.path(), Path::new("/a b/é#?%.db"));
        assert!(!options.early);
        assert!(options.any_filesystem);

        let options = SqliteOptions::from_url("sqlite:///a.db").unwrap();
        assert_eq!(options, SqliteOptions::new("/a.db").unwrap());
        assert!(options.early);
        assert!(!options.any_filesystem);
        assert!(SqliteOptions::from_url("sqlite:a.db").unwrap().path().is_absolute());
        let raw = SqliteOptions::from_url("sqlite:/%ff.db").unwrap();
        assert_eq!(raw.path().as_os_str().as_bytes(), b"/\xff.db");
        assert_eq!(SqliteOptions::from_url("SQLite:/a.db").unwrap(), SqliteOptions::new("/a.db").unwrap());
    }

    #[test]
    fn a_url_that_is_wrong_is_refused_with_the_part_that_is_wrong() {
        for (url, part) in [
            ("", "begin with sqlite:"),
            ("redis://localhost", "begin with sqlite:"),
            ("sqlite:", "not be empty"),
            ("sqlite:/", "name a file"),
            ("sqlite:/a/", "name a file"),
            ("sqlite:/a/..", "name a file"),
            ("sqlite://host/a.db", "name no host"),
            ("sqlite:/a.db#b", "%23"),
            ("sqlite:/a%2", "%25"),
            ("sqlite:/a%zz", "%25"),
            ("sqlite:/a%+1", "%25"),
            ("sqlite:/a%é", "%25"),
            ("sqlite:/a%00b", "zero byte"),
            ("sqlite:/a.db?early=maybe", "early=on or early=off"),
            ("sqlite:/a.db?early", "early=on or early=off"),
            ("sqlite:/a.db?fs=nfs", "fs=local or fs=any"),
            ("sqlite:/a.db?earyl=off", "\"earyl\""),
            ("sqlite:/a.db?fs=any&fs=any", "fs only once"),
        ] {
            let error = SqliteOptions::from_url(url).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn an_error_about_a_url_shows_no_user_and_no_password() {
        for url in [
            "sqlite://me:secret@host/a.db",
            "sqlite://me:sec/secret@host/a.db?early=off",
            "sqlite://me:secret@host/a.db#b",
            "redis://me:secret@host",
            "redis:me:secret@host",
            "SQLITE://me:secret@host/a.db",
            "me:secret@host",
            "secret@host:80",
            "secret",
        ] {
            let error = SqliteOptions::from_url(url).expect_err(url).to_string();
            assert!(!error.contains("secret"), "{url}: {error}");
        }
        let error = SqliteOptions::from_url("sqlite://me:secret@host/a.db").unwrap_err().to_string();
        assert!(error.contains("\"sqlite:…\"") && !error.contains("me:"), "{error}");
        let error = SqliteOptions::from_url("sqlite:/a@b.db?fs=nfs").unwrap_err().to_string();
        assert!(error.contains("/a@b.db"), "a path is shown: {error}");
    }

    #[test]
    fn the_path_of_a_program_lies_in_the_users_state_folder_and_nowhere_else() {
        let path = |app: &str, state: Option<&str>, home: Option<&str>| {
            app_path(app, state.map(OsString::from), home.map(OsString::from))
        };
        assert_eq!(path("backup", Some("/s"), Some("/h")).unwrap(), Path::new("/s/tenure/backup.db"));
        assert_eq!(path("backup", None, Some("/h")).unwrap(), Path::new("/h/.local/state/tenure/backup.db"));
        assert_eq!(
            path("backup", Some(""), Some("/h")).unwrap(),
            Path::new("/h/.local/state/tenure/backup.db")
        );
        for (state, home) in [(None, None), (Some(""), Some("")), (Some("s"), Some("/h")), (None, Some("h"))]
        {
            assert!(path("backup", state, home).is_err(), "{state:?} {home:?}");
        }
        for app in ["", ".", "..", ".hidden", "a/b", "a b", "é", "a\0", &"x".repeat(101)] {
            assert!(path(app, Some("/s"), None).is_err(), "{app:?}");
        }
        assert!(path(&"x".repeat(100), Some("/s"), None).is_ok());
    }

    #[test]
    fn missing_folders_of_a_programs_store_are_made_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let temporary = tempfile::tempdir().unwrap();
        let path = app_path("backup", Some(temporary.path().join("state").into()), None).unwrap();
        let options = SqliteOptions { create_folders: true, ..SqliteOptions::new(&path).unwrap() };
        assert_eq!(crate::file::locate(&options).unwrap(), path.canonicalize().unwrap_or(path));
        for folder in ["state", "state/tenure"] {
            let mode = temporary.path().join(folder).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{folder}");
        }
    }
}
