//! The URL of such a store, taken apart. No error shows what may be a secret: of the URL only its scheme, and of its who
//! only what comes after all that could be a misplaced password was found in order.

use std::path::PathBuf;
use std::time::Duration;

use tenure_store::core::ConfigError;
use tenure_store::url::{Parts, Refusal, decode, decode_path, duration, presentable};

use super::access::{Login, Secret};
use super::{Address, NatsOptions, PORT};

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
    after_scheme(scheme == "tls", rest).map_err(|refusal| refusal.of_url(scheme))
}

fn after_scheme(tls: bool, rest: &str) -> Result<NatsOptions, Refusal> {
    let url = Parts::of(rest, true)?.ok_or("have // and a host after its scheme")?;
    if !matches!(url.path, "" | "/") {
        return Err("have nothing after the hosts; the bucket is given by ?bucket=".into());
    }
    let servers = url.hosts.split(',').map(|host| Address::parse(host, PORT)).collect::<Result<_, _>>()?;
    let mut options = NatsOptions::of(servers);
    if tls {
        options = options.tls();
    }
    let mut who = Who::default();
    if let Some(userinfo) = url.userinfo {
        let Some((name, password)) = userinfo.split_once(':') else {
            return Err(
                "have user:password@ before the hosts; a token is given by token_file or token_env".into()
            );
        };
        if name.is_empty() || password.is_empty() {
            // Most likely a variable was to be put in and was not set.
            return Err("have a user and a password before the @".into());
        }
        who.name = Some(decode(name)?);
        who.login(Login::User(String::new(), Secret::Text(decode(password)?)))?;
    }
    let parameters = url.parameters()?;
    for (key, value) in &parameters {
        options = parameter(options, &mut who, key, value)?;
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
    options.access.login = who.end()?;
    Ok(options)
}

/// Who to be, as far as it is known yet.
#[derive(Default)]
struct Who {
    name: Option<String>,
    login: Option<Login>,
}

impl Who {
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

fn parameter(options: NatsOptions, who: &mut Who, key: &str, value: &str) -> Result<NatsOptions, Refusal> {
    let text = || -> Result<String, Refusal> {
        let text = decode(value)?;
        if text.is_empty() { Err(format!("have a value after {key}=").into()) } else { Ok(text) }
    };
    let path = || -> Result<PathBuf, Refusal> {
        let path = decode_path(value)?;
        if path.as_os_str().is_empty() { Err(format!("have a path after {key}=").into()) } else { Ok(path) }
    };
    match key {
        "username" => who.name(text()?)?,
        "password_file" => who.login(Login::User(String::new(), Secret::File(path()?)))?,
        "password_env" => who.login(Login::User(String::new(), Secret::Variable(text()?)))?,
        "token_file" => who.login(Login::Token(Secret::File(path()?)))?,
        "token_env" => who.login(Login::Token(Secret::Variable(text()?)))?,
        "creds" => who.login(Login::Credentials(path()?))?,
        "nkey" => who.login(Login::Nkey(Secret::File(path()?)))?,
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
