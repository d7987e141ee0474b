//! What the URLs of stores have in common, for adapters that take one.

use std::ffi::OsString;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use tenure_core::ConfigError;

/// Percent-decodes (RFC 3986, section 2.1) what may be any bytes. `None` if a `%` is not followed by two hexadecimal
/// digits: then nobody can tell what was meant, and a password would silently be another one. A `+` is a plus.
///
/// ```
/// # use tenure_store::url::percent_decode;
/// assert_eq!(percent_decode("p%40ss+%C3%A9"), Some("p@ss+é".into()));
/// assert_eq!(percent_decode("100%"), None);
/// ```
#[must_use]
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hexadecimal(bytes.next()?)? << 4 | hexadecimal(bytes.next()?)?,
            plain => plain,
        });
    }
    Some(decoded)
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Takes a query apart: `key=value` joined by `&`, not yet decoded; a key alone has an empty value, and what is empty is
/// passed over.
///
/// # Errors
/// The key that is given twice: which of the two counts would be a guess.
pub fn parameters(query: &str) -> Result<Vec<(&str, &str)>, &str> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if found.iter().any(|(earlier, _)| *earlier == key) {
            return Err(key);
        }
        found.push((key, value));
    }
    Ok(found)
}

/// Why the URL of a store is refused. No text of it shows what may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a URL breaks a rule of its own, or one of a setting")]
pub enum Refusal {
    /// What it must do: a phrase that fits behind *must*.
    Rule(String),
    /// One of its settings is refused.
    Setting(ConfigError),
}

impl Refusal {
    /// The error of whoever gave a URL with this scheme; its other parts are not shown.
    #[must_use]
    pub fn of_url(self, scheme: &str) -> ConfigError {
        match self {
            Self::Rule(rule) => {
                ConfigError::new("the store's URL", format!("\"{scheme}:…\""), format!("must {rule}"))
            }
            Self::Setting(error) => error,
        }
    }
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

const PLAIN_USERINFO: &str = "have @, /, ?, # and % in a user or a password percent-encoded (%40, %2F, %3F, %23, %25), \
     and likewise elsewhere but for one @ before the hosts";

/// What follows the scheme of a URL with servers in it, taken apart and not decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "RFC 3986 has no other parts")]
pub struct Parts<'a> {
    /// What stands before the `@`, if there is one: a user, a password.
    pub userinfo: Option<&'a str>,
    /// What stands between that and the path. Empty without `//`.
    pub hosts: &'a str,
    /// The path, with its first slash.
    pub path: &'a str,
    /// What stands behind the `?`.
    pub query: &'a str,
}

impl<'a> Parts<'a> {
    /// Takes it apart; `None` if it has no `//` and needs it.
    ///
    /// # Errors
    /// What could be half a password in the place of something else.
    pub fn of(rest: &'a str, needs_hosts: bool) -> Result<Option<Self>, Refusal> {
        if rest.contains('#') {
            return Err("have no fragment; write # in a password or a path as %23".into());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None if needs_hosts => return Ok(None),
            None => ("", rest),
        };
        // Else half a password would be taken for a host, a port, a path or a parameter.
        if query.contains('@') || path.contains('@') || authority.matches('@').count() > 1 {
            return Err(PLAIN_USERINFO.into());
        }
        let (userinfo, hosts) = match authority.split_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        Ok(Some(Self { userinfo, hosts, path, query }))
    }

    /// The parameters, in their order, not decoded.
    ///
    /// # Errors
    /// One is given twice.
    pub fn parameters(&self) -> Result<Vec<(&'a str, &'a str)>, Refusal> {
        parameters(self.query).map_err(|key| Refusal::Rule(format!("give {} only once", presentable(key))))
    }
}

/// Takes `host` or `host:port`, an IPv6 address in brackets; gives it back without them.
///
/// # Errors
/// The rule that is broken. It shows nothing of the text, which may be a password that is in the wrong place.
pub fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((host, port)) = rest.split_once(']') else {
                return Err("have a ] at the end of an IPv6 address".to_owned());
            };
            let Ok(host) = host.parse::<Ipv6Addr>() else {
                return Err("have an IPv6 address between [ and ]".to_owned());
            };
            (host.to_string(), port)
        }
        None => {
            let end = text.find(':').unwrap_or(text.len());
            (text[..end].to_ascii_lowercase(), &text[end..])
        }
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() {
        return Err(format!("name a host (an IPv6 address in brackets: [::1]:{default_port})"));
    }
    if !host.chars().all(allowed) {
        return Err(
            "have hosts of letters, digits, -, . and _ only (an international name in its form xn--…)"
                .to_owned(),
        );
    }
    if host == "0.0.0.0" || host == "::" {
        return Err(
            "name a host that one can connect to; 0.0.0.0 and :: are where a server listens".to_owned()
        );
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => Some(default_port),
        None => None,
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => digits.parse().ok(),
        Some(_) => None,
    };
    match port {
        None | Some(0) => Err(format!(
            "have a port from 1 to 65535 after a host's colon (an IPv6 address is in brackets: [::1]:{default_port})"
        )),
        Some(port) => Ok((host, port)),
    }
}

/// A key as an error may show it: it may be anything, but is mostly a known one with a letter wrong.
#[must_use]
pub fn presentable(key: &str) -> String {
    let plain = key.len() <= 30 && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if plain { format!("the parameter {key:?}") } else { "such a parameter".to_owned() }
}

/// Percent-decodes a text.
///
/// # Errors
/// It is none once it is decoded.
pub fn decode(text: &str) -> Result<String, Refusal> {
    String::from_utf8(bytes(text)?).map_err(|_| "be UTF-8 once it is percent-decoded".into())
}

fn bytes(text: &str) -> Result<Vec<u8>, Refusal> {
    percent_decode(text)
        .ok_or_else(|| "have % only before two hexadecimal digits; write % itself as %25".into())
}

/// Percent-decodes a path.
///
/// # Errors
/// It can't be decoded.
#[cfg(unix)]
pub fn decode_path(text: &str) -> Result<PathBuf, Refusal> {
    use std::os::unix::ffi::OsStringExt as _;
    Ok(PathBuf::from(OsString::from_vec(bytes(text)?)))
}

/// Percent-decodes a path.
///
/// # Errors
/// It can't be decoded.
#[cfg(not(unix))]
pub fn decode_path(text: &str) -> Result<PathBuf, Refusal> {
    Ok(PathBuf::from(OsString::from(decode(text)?)))
}

/// The longest time that a parameter may say.
const LONGEST: Duration = Duration::from_secs(3600);

/// A length of time as it stands behind a parameter: a whole number with `ms`, `s`, `m` or `min`, from `least` to an hour.
///
/// # Errors
/// It is no such time.
pub fn duration(key: &str, text: &str, least: Duration) -> Result<Duration, Refusal> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_percent_encoded_becomes_any_bytes() {
        assert_eq!(percent_decode(""), Some(vec![]));
        assert_eq!(percent_decode("a+b c/é"), Some("a+b c/é".into()));
        assert_eq!(percent_decode("%40%23%2f%2B%3d%25%3A%3F"), Some("@#/+=%:?".into()));
        assert_eq!(percent_decode("%00%ff%FF"), Some(vec![0, 255, 255]));
    }

    #[test]
    fn a_percent_sign_has_two_hexadecimal_digits_after_it() {
        for text in ["%", "a%", "%2", "%zz", "%+1", "%-1", "%é", "%4", "%%34", "% 1"] {
            assert_eq!(percent_decode(text), None, "{text}");
        }
    }

    #[test]
    fn a_query_is_taken_apart_in_its_order_and_no_key_comes_twice() {
        assert_eq!(parameters(""), Ok(vec![]));
        assert_eq!(parameters("&a=1&&b&c=d=e&"), Ok(vec![("a", "1"), ("b", ""), ("c", "d=e")]));
        assert_eq!(parameters("a=1&b=2&a=1"), Err("a"));
    }

    #[test]
    fn a_host_and_a_port_are_told_apart_and_an_error_shows_nothing_of_them() {
        let of = |text| host_and_port(text, 7);
        assert_eq!(of("One.example"), Ok(("one.example".to_owned(), 7)));
        assert_eq!(of("one:8"), Ok(("one".to_owned(), 8)));
        assert_eq!(of("[::1]:9"), Ok(("::1".to_owned(), 9)));
        assert_eq!(of("[2001:DB8::0]"), Ok(("2001:db8::".to_owned(), 7)));
        for secret in [
            "",
            ":7",
            "[::1",
            "[x]",
            "[::1]7",
            "s3cret:",
            "s3cret:0",
            "s3cret:65536",
            "s3cret:+1",
            "s3cret:1:2",
        ] {
            let rule = of(secret).expect_err(secret);
            assert!(!rule.contains("s3cret") && (!secret.is_empty() || rule.contains("[::1]:7")), "{rule}");
        }
        assert!(of("0.0.0.0").is_err() && of("[::]").is_err() && of("sécret").is_err());
    }

    #[test]
    fn a_url_is_taken_apart_unless_half_a_password_could_be_anything_else() {
        let of = |text| Parts::of(text, true);
        let parts = of("//u:p%40@a,b/x?k=v").unwrap().unwrap();
        assert_eq!((parts.userinfo, parts.hosts), (Some("u:p%40"), "a,b"));
        assert_eq!((parts.path, parts.parameters()), ("/x", Ok(vec![("k", "v")])));
        for misplaced in ["//u:p@q@a", "//u:p/q@a", "//u:p?q@a", "//a#b"] {
            assert!(matches!(of(misplaced), Err(Refusal::Rule(_))), "{misplaced}");
        }
        assert!(of("/x").unwrap().is_none());
        assert_eq!(Parts::of("/x", false).unwrap().unwrap().path, "/x");
        assert_eq!(
            of("//a?k=1&k=2").unwrap().unwrap().parameters(),
            Err("give the parameter \"k\" only once".into())
        );
        let shown = Refusal::from("be so").of_url("nats").to_string();
        assert!(shown.contains("\"nats:…\"") && shown.contains("must be so"), "{shown}");
    }

    #[test]
    fn a_time_has_a_unit_and_lies_between_its_bounds() {
        let of = |text| duration("k", text, Duration::from_millis(1));
        assert_eq!(of("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!((of("5s"), of("2m")), (Ok(Duration::from_secs(5)), Ok(Duration::from_secs(120))));
        assert_eq!(of("60min"), Ok(Duration::from_secs(3600)));
        for wrong in ["", "5", "s", "0s", "61min", "-1s", "1.5s", "1h", "4294967296ms"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
