//! The value of a lease's key: `token:owner`, and what is kept for people as JSON in a second line.

use std::time::Duration;

use tenure_core::Token;
use tenure_store::Holder;

/// Who holds a lease whose key has this value and lives for so long yet.
pub(crate) fn holder(value: &[u8], remaining: Duration) -> Holder {
    let text = String::from_utf8_lossy(value);
    let mut lines = text.splitn(2, '\n');
    let first = lines.next().unwrap_or_default();
    let read =
        first.split_once(':').and_then(|(token, owner)| Some((Token::new(token.parse().ok()?), owner)));
    let mut holder = match read {
        Some((token, owner)) => {
            let mut holder = Holder::new(owner);
            holder.token = Some(token);
            holder
        }
        None => {
            let mut holder = Holder::new(first);
            holder.problem = Some("the record is that of another program".to_owned());
            holder
        }
    };
    holder.remaining = Some(remaining);
    holder
}
