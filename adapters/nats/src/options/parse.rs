//! The URL of such a store, taken apart. No error shows what may be a secret: of the URL only its scheme, and of its parts
//! only what comes after all that could be a misplaced password was found in order.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tenure_store::core::ConfigError;
use tenure_store::url::{parameters, percent_decode};

use super::access::{Login, Secret};
use super::{Address, NatsOptions, PORT};

const PLAIN_USERINFO: &str = "have @, /, ?, # and % in a user or a password percent-encoded (%40, %2F, %3F, %23, %25), \
     and likewise elsewhere but for one @ before the hosts";
const PARAMETERS: &str = "bucket, replicas, username, password_file, password_env, token_file, token_env, creds, nkey, \
     ca, cert, key, inbox_prefix, connect_timeout and clock_step";

pub(super) fn parse(url: &str) -> Result<NatsOptions, ConfigError> {
    let scheme = url.split_once(':').map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
    let (scheme, rest) = match &scheme {
        Some((scheme, rest)) if scheme == "nats" || scheme == "tls" => (&**scheme, *rest),
        _ => {
            let rule = "must begin with nats: or, for TLS, tls:".to_owned();
            return Err(ConfigError::new("the store's URL", "\"…\"".to_owned(), rule));
        }
    };
    after_scheme(scheme == "tls", rest).map_err(|refusal| match refusal {
        Refusal::Rule(rule) => {
            ConfigError::new("the store's URL", format!("\"{scheme}:…\""), format!("must {rule}"))
        }
        Refusal::Setting(error) => error,
    })
}

/// Why a URL is refused.
enum Refusal {
    /// What it must do.
    Rule(String),
    /// One of its settings is refused.
    Setting(ConfigError),
}

impl From<&str> for Refusal {
    fn from(rule: &str) -> Self {
        Self::Rule(rule.to_owned())
    }
}

impl From<String> for Refusal {
    fn from(rule: String) -> Self {
        Self::Rule(rule)
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::Setting(error)
    }
}

fn after_scheme(tls: bool, rest: &str) -> Result<NatsOptions, Refusal> {
    if rest.contains('#') {
        return Err("have no fragment; write # in a password or a path as %23".into());
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let Some(rest) = rest.strip_prefix("//") else {
        return Err("have // and a host after its scheme".into());
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // Else half a password would be taken for a host, a port, a path or a parameter.
    if query.contains('@') || path.contains('@') || authority.matches('@').count() > 1 {
        return Err(PLAIN_USERINFO.into());
    }
    if !matches!(path, "" | "/") {
        return Err("have nothing after the hosts; the bucket is given by ?bucket=".into());
    }
    let (userinfo, hosts) = match authority.split_once('@') {
        Some((userinfo, hosts)) => (Some(userinfo), hosts),
        None => (None, authority),
    };
    let servers = hosts.split(',').map(|host| Address::parse(host, PORT)).collect::<Result<_, _>>()?;
    let mut options = NatsOptions::of(servers);
    if tls {
        options = options.tls();
    }
    let mut parts = Parts::default();
    if let Some(userinfo) = userinfo {
        let Some((name, password)) = userinfo.split_once(':') else {
            return Err(
                "have user:password@ before the hosts; a token is given by token_file or token_env".into()
            );
        };
        if name.is_empty() || password.is_empty() {
            // Most likely a variable was to be put in and was not set.
            return Err("have a user and a password before the @".into());
        }
        parts.name = Some(decode(name)?);
        parts.login(Login::User(String::new(), Secret::Text(decode(password)?)))?;
    }
    let parameters =
        parameters(query).map_err(|key| Refusal::Rule(format!("give {} only once", presentable(key))))?;
    for (key, value) in &parameters {
        options = parameter(options, &mut parts, key, value)?;
    }
    let given = |key: &str| parameters.iter().any(|(other, _)| *other == key);
    for key in ["ca", "cert", "key"] {
        if given(key) && !tls {
            return Err(format!("begin with tls to have {key}").into());
        }
    }
    if given("cert") != given("key") {
        return Err("give cert and key together".into());
    }
    options.access.login = parts.end()?;
    Ok(options)
}

/// Who to be, as far as it is known yet.
#[derive(Default)]
struct Parts {
    name: Option<String>,
    login: Option<Login>,
}

impl Parts {
    fn name(&mut self, name: String) -> Result<(), Refusal> {
        match self.name.replace(name) {
            None => Ok(()),
            Some(_) => Err("give the user once: before the hosts, or as a parameter".into()),
        }
    }

    fn login(&mut self, login: Login) -> Result<(), Refusal> {
        if self.login.replace(login).is_some() {
            return Err("say in one way who to be: by a user and a password, a token, creds or nkey".into());
        }
        Ok(())
    }

    fn end(self) -> Result<Login, Refusal> {
        match (self.name, self.login) {
            (Some(name), Some(Login::User(_, secret))) => Ok(Login::User(name, secret)),
            (None, Some(Login::User(..))) => Err("name the user of the password: by username=".into()),
            (None, login) => Ok(login.unwrap_or_default()),
            (Some(_), _) => {
                Err("give the user a password: user:password@, password_file or password_env".into())
            }
        }
    }
}

fn parameter(
    options: NatsOptions,
    parts: &mut Parts,
    key: &str,
    value: &str,
) -> Result<NatsOptions, Refusal> {
    let text = || -> Result<String, Refusal> {
        let text = decode(value)?;
        if text.is_empty() { Err(format!("have a value after {key}=").into()) } else { Ok(text) }
    };
    let path = || -> Result<PathBuf, Refusal> {
        let path = file(value)?;
        if path.as_os_str().is_empty() { Err(format!("have a path after {key}=").into()) } else { Ok(path) }
    };
    match key {
        "username" => parts.name(text()?)?,
        "password_file" => parts.login(Login::User(String::new(), Secret::File(path()?)))?,
        "password_env" => parts.login(Login::User(String::new(), Secret::Variable(text()?)))?,
        "token_file" => parts.login(Login::Token(Secret::File(path()?)))?,
        "token_env" => parts.login(Login::Token(Secret::Variable(text()?)))?,
        "creds" => parts.login(Login::Credentials(path()?))?,
        "nkey" => parts.login(Login::Nkey(Secret::File(path()?)))?,
        _ => {}
    }
    Ok(match key {
        "username" | "password_file" | "password_env" | "token_file" | "token_env" | "creds" | "nkey" => {
            options
        }
        "bucket" => options.bucket(text()?)?,
        "replicas" => {
            let replicas = text()?.parse().ok().ok_or("have a number after replicas=")?;
            options.replicas(replicas)?
        }
        "ca" => options.ca_file(path()?),
        "cert" => {
            let mut options = options.tls();
            options.access.tls.get_or_insert_default().identity.get_or_insert_default().0 = path()?;
            options
        }
        "key" => {
            let mut options = options.tls();
            options.access.tls.get_or_insert_default().identity.get_or_insert_default().1 = path()?;
            options
        }
        "inbox_prefix" => options.inbox_prefix(text()?)?,
        "connect_timeout" => options.connect_timeout(duration(key, value, Duration::from_millis(1))?),
        "clock_step" => options.clock_step(duration(key, value, Duration::ZERO)?),
        "insecure" => {
            return Err(
                "not switch the check of certificates off; give the authority's certificate by ca=/path.pem"
                    .into(),
            );
        }
        "password" | "pass" | "token" => {
            return Err("have no secret among the parameters; there are user:password@ before the hosts, \
                 password_file, password_env, token_file and token_env"
                .into());
        }
        _ => return Err(format!("not have {}; there are {PARAMETERS}", presentable(key)).into()),
    })
}

/// A key as an error may show it: it may be anything, but is mostly a known one with a letter wrong.
fn presentable(key: &str) -> String {
    let plain = key.len() <= 30 && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if plain { format!("the parameter {key:?}") } else { "such a parameter".to_owned() }
}

fn decode(text: &str) -> Result<String, Refusal> {
    String::from_utf8(bytes(text)?).map_err(|_| "be UTF-8 once it is percent-decoded".into())
}

fn bytes(text: &str) -> Result<Vec<u8>, Refusal> {
    percent_decode(text)
        .ok_or_else(|| "have % only before two hexadecimal digits; write % itself as %25".into())
}

#[cfg(unix)]
fn file(text: &str) -> Result<PathBuf, Refusal> {
    use std::os::unix::ffi::OsStringExt as _;
    Ok(PathBuf::from(OsString::from_vec(bytes(text)?)))
}

#[cfg(not(unix))]
fn file(text: &str) -> Result<PathBuf, Refusal> {
    Ok(PathBuf::from(OsString::from(decode(text)?)))
}

/// The longest time that a parameter may say.
const LONGEST: Duration = Duration::from_secs(3600);

fn duration(key: &str, text: &str, least: Duration) -> Result<Duration, Refusal> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..digits].parse::<u32>().ok();
    let time = match (number, &text[digits..]) {
        (Some(number), "ms") => Some(Duration::from_millis(number.into())),
        (Some(number), "s") => Some(Duration::from_secs(number.into())),
        (Some(number), "m" | "min") => Some(Duration::from_secs(60 * u64::from(number))),
        _ => None,
    };
    time.filter(|time| (least..=LONGEST).contains(time)).ok_or_else(|| {
        format!("have a time like 500ms or 5s after {key}=, from {least:?} to {LONGEST:?}").into()
    })
}
