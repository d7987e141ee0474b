//! The URL of such a store, taken apart. No error shows what may be a secret: of the URL only its scheme, and of its parts
//! only what comes after all that could be a misplaced password was found in order.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tenure_store::core::ConfigError;
use tenure_store::url::{parameters, percent_decode};

use super::endpoint::Address;
use super::{PORT, RedisOptions, SENTINEL_PORT, Servers};

/// What the scheme says.
#[derive(Clone, Copy)]
struct Scheme {
    tls: bool,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Server,
    Socket,
    Sentinel,
    Cluster,
}

impl Scheme {
    fn of(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (name, form) = text.split_once('+').map_or((&*text, None), |(name, form)| (name, Some(form)));
        let tls = match name {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return None,
        };
        let form = match form {
            None => Form::Server,
            Some("unix") if !tls => Form::Socket,
            Some("sentinel") => Form::Sentinel,
            Some("cluster") => Form::Cluster,
            Some(_) => return None,
        };
        Some(Self { tls, form })
    }
}

const SCHEMES: &str = "begin with redis: or valkey:, rediss: or valkeys: for TLS, or one of these and +sentinel: or \
     +cluster:, or redis+unix: or valkey+unix:";
const PLAIN_USERINFO: &str = "have @, /, ?, # and % in a user or a password percent-encoded (%40, %2F, %3F, %23, %25), \
     and likewise elsewhere but for one @ before the hosts";
const PARAMETERS: &str = "prefix, db, username, password_file, password_env, sentinel_username, sentinel_password_file, \
     sentinel_password_env, ca, cert, key, connect_timeout and clock_step";

pub(super) fn parse(url: &str) -> Result<RedisOptions, ConfigError> {
    let scheme = url.split_once(':').and_then(|(text, rest)| Some((Scheme::of(text)?, text, rest)));
    let Some((scheme, text, rest)) = scheme else {
        return Err(ConfigError::new("the store's URL", "\"…\"".to_owned(), format!("must {SCHEMES}")));
    };
    after_scheme(scheme, rest).map_err(|refusal| match refusal {
        Refusal::Rule(rule) => {
            ConfigError::new("the store's URL", format!("\"{text}:…\""), format!("must {rule}"))
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

fn after_scheme(scheme: Scheme, rest: &str) -> Result<RedisOptions, Refusal> {
    if rest.contains('#') {
        return Err("have no fragment; write # in a password or a path as %23".into());
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None if scheme.form == Form::Socket => ("", rest),
        None => return Err("have // and a host after its scheme".into()),
    };
    // Else half a password would be taken for a host, a port, a path or a parameter.
    if query.contains('@') || path.contains('@') || authority.matches('@').count() > 1 {
        return Err(PLAIN_USERINFO.into());
    }
    let (userinfo, hosts) = match authority.split_once('@') {
        Some((userinfo, hosts)) => (Some(userinfo), hosts),
        None => (None, authority),
    };
    let mut path = Path::new(path);
    let servers = match scheme.form {
        Form::Socket if hosts.is_empty() => Servers::One(path.socket()?),
        Form::Socket => return Err("have three slashes before the path of a unix socket, or one".into()),
        Form::Server if hosts.contains(',') => {
            return Err("name one host; of several, begin with redis+sentinel: or redis+cluster:".into());
        }
        Form::Server => Servers::One(Address::parse(hosts, PORT)?),
        Form::Cluster => Servers::Cluster(addresses(hosts, PORT)?),
        Form::Sentinel => {
            let sentinels = addresses(hosts, SENTINEL_PORT)?;
            let service = path.next().filter(|service| !service.is_empty()).ok_or(
                "name the service after the Sentinels, as in redis+sentinel://host1,host2/service/0",
            )?;
            Servers::Sentinel { sentinels, service: decode(service)? }
        }
    };
    let mut options = RedisOptions::of(servers);
    if scheme.tls {
        options = options.tls();
    }
    let mut database = path.next().map(number).transpose()?;
    if path.next().is_some() {
        return Err("have nothing after the number of the database".into());
    }
    if let Some(userinfo) = userinfo {
        options = user(options, userinfo)?;
    }
    let parameters =
        parameters(query).map_err(|key| Refusal::Rule(format!("give {} only once", presentable(key))))?;
    let given = |key: &str| parameters.iter().any(|(other, _)| *other == key);
    for (one, other) in
        [("password_file", "password_env"), ("sentinel_password_file", "sentinel_password_env")]
    {
        if given(one) && given(other) {
            return Err(format!("give one of {one} and {other}").into());
        }
    }
    for (key, value) in &parameters {
        options = parameter(options, key, value, &mut database)?;
    }
    for key in ["ca", "cert", "key"] {
        if given(key) && !scheme.tls {
            return Err(format!("begin with rediss or valkeys to have {key}").into());
        }
    }
    for (key, _) in &parameters {
        if key.starts_with("sentinel_") && scheme.form != Form::Sentinel {
            return Err(format!("name Sentinels to have {key}").into());
        }
    }
    if given("cert") != given("key") {
        return Err("give cert and key together".into());
    }
    if options.access.username.is_some() && options.access.password.is_none() {
        return Err("give the user a password: user:password@, password_file or password_env".into());
    }
    if given("sentinel_username") && options.sentinel_password.is_none() {
        return Err("give the user a password: sentinel_password_file or sentinel_password_env".into());
    }
    let database = database.unwrap_or(0);
    if scheme.form == Form::Cluster && database != 0 {
        return Err("have no database but 0: there is no other in a Cluster".into());
    }
    Ok(options.database(database))
}

/// What is left of the path.
struct Path<'a>(&'a str);

impl<'a> Path<'a> {
    fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// The next segment, if there is one that is not empty.
    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.strip_prefix('/')?;
        let (segment, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if segment.is_empty() && rest.is_empty() {
            return None;
        }
        self.0 = rest;
        Some(segment)
    }

    /// All of it, as the path of a socket.
    fn socket(&mut self) -> Result<Address, Refusal> {
        let path = file(std::mem::take(&mut self.0))?;
        Ok(Address::socket(path)?)
    }
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, Refusal> {
    Ok(hosts.split(',').map(|host| Address::parse(host, port)).collect::<Result<_, _>>()?)
}

/// The user and the password before the hosts.
fn user(options: RedisOptions, userinfo: &str) -> Result<RedisOptions, Refusal> {
    let (name, password) = match userinfo.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (userinfo, None),
    };
    let options = if name.is_empty() { options } else { options.username(decode(name)?) };
    match password {
        // Most likely a variable was to be put in and was not set.
        Some("") if name.is_empty() => Err("have a password between : and @".into()),
        Some(password) => Ok(options.password(decode(password)?)),
        None => Ok(options),
    }
}

fn parameter(
    options: RedisOptions,
    key: &str,
    value: &str,
    database: &mut Option<u32>,
) -> Result<RedisOptions, Refusal> {
    let text = || -> Result<String, Refusal> {
        let text = decode(value)?;
        if text.is_empty() { Err(format!("have a value after {key}=").into()) } else { Ok(text) }
    };
    let path = || -> Result<PathBuf, Refusal> {
        let path = file(value)?;
        if path.as_os_str().is_empty() { Err(format!("have a path after {key}=").into()) } else { Ok(path) }
    };
    let once = |given: bool, what: &str| {
        if given {
            Err(Refusal::Rule(format!("give {what} once: before the host, or as a parameter")))
        } else {
            Ok(())
        }
    };
    Ok(match key {
        "prefix" => options.prefix(text()?)?,
        "db" => {
            if database.replace(number(value)?).is_some() {
                return Err("give the database once: in the path, or as db".into());
            }
            options
        }
        "username" => {
            once(options.access.username.is_some(), "the user")?;
            options.username(text()?)
        }
        "password_file" => {
            once(options.access.password.is_some(), "the password")?;
            options.password_file(path()?)
        }
        "password_env" => {
            once(options.access.password.is_some(), "the password")?;
            options.password_env(text()?)
        }
        "sentinel_username" => options.sentinel_username(text()?),
        "sentinel_password_file" => options.sentinel_password_file(path()?),
        "sentinel_password_env" => options.sentinel_password_env(text()?),
        "ca" => options.ca_file(path()?),
        "cert" => {
            let mut options = options.tls();
            let tls = options.access.tls.get_or_insert_default();
            tls.identity.get_or_insert_default().0 = path()?;
            options
        }
        "key" => {
            let mut options = options.tls();
            let tls = options.access.tls.get_or_insert_default();
            tls.identity.get_or_insert_default().1 = path()?;
            options
        }
        "connect_timeout" => options.connect_timeout(duration(key, value, Duration::from_millis(1))?),
        "clock_step" => options.clock_step(duration(key, value, Duration::ZERO)?),
        "insecure" => {
            return Err(
                "not switch the check of certificates off; give the authority's certificate by ca=/path.pem"
                    .into(),
            );
        }
        "password" | "pass" | "sentinel_password" => {
            return Err("have no password among the parameters; there are user:password@ before the host, \
                 password_file and password_env, for Sentinels sentinel_password_file and sentinel_password_env"
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

fn number(text: &str) -> Result<u32, Refusal> {
    let number = if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None };
    number.ok_or_else(|| "have a number where the database stands".into())
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
