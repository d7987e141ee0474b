//! What the URLs of stores have in common, for adapters that take one.

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
}
