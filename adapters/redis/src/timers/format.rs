//! A timer's record as it is written: the token of a new grant is the server's to give.

use tenure_core::Token;
use tenure_json::{Value, timer};
use tenure_store::TimerRecord;

/// What stands in the place of the token that the server is yet to give.
const NEW: &str = "new";

/// The same within the text. There quotes are escaped, so that nothing that a user says looks like this.
const UNKNOWN_TOKEN: &str = r#""token":"new""#;

/// A record as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// All of it.
    Whole(String),
    /// What stands before and after the token of a new grant.
    AroundToken(String, String),
}

/// Writes a record; a claim whose token is zero has just been granted.
pub(crate) fn write(record: &TimerRecord, unreadable: &[Value]) -> Written {
    // What can't be read comes last: there might be something in it that looks like a token to come.
    let text = timer::write(record, unreadable, Some(NEW));
    let granted = record.claims.iter().any(|claim| !claim.owner.is_empty() && claim.token == Token::ZERO);
    match text.split_once(UNKNOWN_TOKEN) {
        Some((before, after)) if granted => {
            Written::AroundToken(format!("{before}\"token\":"), after.to_owned())
        }
        _ => Written::Whole(text),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::{Instant, Tick, Timestamp};
    use tenure_store::{Claim, Metadata};

    use super::*;

    fn claim(tick: u64, token: u64) -> Claim {
        Claim {
            tick,
            owner: "a/1.1".to_owned(),
            token: Token::new(token),
            ttl: Duration::from_secs(15),
            ends: Instant::from_nanos(7),
            begun: 1,
            attempts: 2,
            since: Timestamp::EPOCH,
            metadata: Metadata::new(),
        }
    }

    #[test]
    fn the_place_of_a_token_to_come_is_found_whatever_users_say() {
        let mut odd = claim(5, 7);
        odd.metadata.text = Some(r#"","token":"new"#.into());
        odd.metadata.host = Some(r#""token":"new""#.into());
        let foreign: Value = [("tick", Value::from(9)), ("token", Value::from("new"))].into_iter().collect();
        let mut record = TimerRecord {
            revision: 3,
            base: Tick { n: 0, at: Timestamp::EPOCH },
            schedule: r#""token":"new""#.into(),
            next: None,
            last: 6,
            claimed: 6,
            claims: vec![odd, claim(6, 0)],
        };
        let Written::AroundToken(before, after) = write(&record, std::slice::from_ref(&foreign)) else {
            panic!("a token is to come")
        };
        let now = Instant::ZERO;
        let loaded = timer::read(format!("{before}88{after}").as_bytes(), None, now).unwrap();
        assert_eq!(loaded.record.claims[..2], [record.claims[0].clone(), claim(6, 88)]);
        assert_eq!(loaded.unreadable.as_slice(), std::slice::from_ref(&foreign));
        record.claims.pop();
        let Written::Whole(text) = write(&record, &[foreign]) else { panic!("nothing was granted") };
        assert_eq!(timer::read(text.as_bytes(), None, now).unwrap().record.claims[0], record.claims[0]);
    }

    #[test]
    fn a_claim_without_a_token_is_held_by_nobody() {
        let record = TimerRecord {
            revision: 3,
            base: Tick { n: 0, at: Timestamp::EPOCH },
            schedule: "every 1s".into(),
            next: None,
            last: 6,
            claimed: 6,
            claims: vec![claim(6, 0)],
        };
        let text = timer::write(&record, &[], None);
        let loaded = timer::read(text.as_bytes(), None, Instant::ZERO).unwrap();
        assert_eq!((loaded.record.claims[0].owner.as_str(), loaded.unreadable.len()), ("", 1));
    }
}
