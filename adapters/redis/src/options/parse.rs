//! The URL of such a store, taken apart. No error shows what may be a secret: of the URL only its scheme, and of its parts
//! only what comes after all that could be a misplaced password was found in order.

use std::path::PathBuf;
use std::time::Duration;

use tenure_store::core::ConfigError;
use tenure_store::url::{Parts, Refusal, decode, decode_path, duration, presentable};

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
const PARAMETERS: &str = "prefix, db, username, password_file, password_env, sentinel_username, sentinel_password_file, \
     sentinel_password_env, ca, cert, key, connect_timeout and clock_step";

pub(super) fn parse(url: &str) -> Result<RedisOptions, ConfigError> {
    let scheme = url.split_once(':').and_then(|(text, rest)| Some((Scheme::of(text)?, text, rest)));
    let Some((scheme, text, rest)) = scheme else {
        return Err(ConfigError::new("the store's URL", "\"…\"".to_owned(), format!("must {SCHEMES}")));
    };
    after_scheme(scheme, rest).map_err(|refusal| refusal.of_url(text))
}

fn after_scheme(scheme: Scheme, rest: &str) -> Result<RedisOptions, Refusal> {
    let url = Parts::of(rest, scheme.form != Form::Socket)?.ok_or("have // and a host after its scheme")?;
    let hosts = url.hosts;
    let mut path = Path::new(url.path);
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
    if let Some(userinfo) = url.userinfo {
        options = user(options, userinfo)?;
    }
    let parameters = url.parameters()?;
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
        let path = decode_path(std::mem::take(&mut self.0))?;
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
        let path = decode_path(value)?;
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

fn number(text: &str) -> Result<u32, Refusal> {
    let number = if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None };
    number.ok_or_else(|| "have a number where the database stands".into())
}
