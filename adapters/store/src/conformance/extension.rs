//! What makes a lease live longer.

use super::Harness;
use super::candidate::{Candidate, lease, long_ttl, run, short_ttl};
use crate::{Acquired, Answer, Operation, Outcome, Renewed};

/// An acquire that confirms a grant begins the TTL anew, like a renewal: its answer promises the whole TTL.
pub fn a_confirmation_extends_the_ttl<H: Harness>(h: &H) {
    extends(
        h,
        |holder, _| holder.acquire().into(),
        |outcome, token| *outcome == Ok(Answer::Acquire(Acquired::Granted(token))),
    );
}

/// A renewal begins the TTL anew.
pub fn a_renewal_extends_the_ttl<H: Harness>(h: &H) {
    extends(
        h,
        |holder, token| holder.renew(token).into(),
        |outcome, _| *outcome == Ok(Answer::Renew(Renewed::Renewed)),
    );
}

/// A machine that is too slow for the short TTL gets so many tries to be faster.
const TRIES: usize = 20;

/// Takes a lease with a short TTL, extends it with a long one, and sees that it outlives the short one.
fn extends<H: Harness>(
    h: &H,
    extend: impl Fn(&Candidate, tenure_core::Token) -> Operation,
    is_right: impl Fn(&Outcome, tenure_core::Token) -> bool,
) {
    h.block_on(async {
        let store = h.fresh().await;
        let (short, long) = (short_ttl::<H>(&store), long_ttl(&store));
        for number in 0..TRIES {
            let name = lease(format!("extended {number}"));
            let holder = Candidate::new(&name, 1, 0, short);
            let sent = h.now();
            let token = holder.gets(&store).await;
            let outcome = run(&store, extend(&holder.with_ttl(long), token)).await;
            if h.now() > sent + short / 2 {
                continue;
            }
            assert!(is_right(&outcome, token), "{outcome:?}");
            h.pass(short * 2).await;
            let refused = Candidate::new(&name, 2, 0, long).is_refused(&store).await;
            assert_eq!(refused.owner, holder.owner.to_string());
            return;
        }
        panic!("two requests took longer than half of {short:?}, {TRIES} times: use a longer Harness::TTL");
    });
}
