//! Waiting for the lease, not in silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure::{Acquire, Holder, Lease, Progress, Tenure};

use crate::args::Run;
use crate::failure::Failure;
use crate::holder::{held_by, span};
use crate::say;
use crate::store::Place;

/// Acquires the lease, and says on standard error for whom it waits, where, and how long.
pub(crate) async fn acquire(args: &Run, place: &Place, tenure: &Tenure) -> Result<Lease, Failure> {
    let name = &args.lease;
    let waited = Arc::new(AtomicBool::new(false));
    let lease = request(args, tenure)
        .on_progress({
            let waited = Arc::clone(&waited);
            let mut notices = Notices::new(args, place);
            move |progress| {
                if notices.say(&progress) {
                    waited.store(true, Ordering::Relaxed);
                }
            }
        })
        .await?;
    if waited.load(Ordering::Relaxed) {
        say::line(format_args!("got lease {name:?}, token {}", lease.token()));
    }
    Ok(lease)
}

fn request(args: &Run, tenure: &Tenure) -> Acquire {
    let request = if args.no_wait { tenure.try_acquire(&args.lease) } else { tenure.acquire(&args.lease) };
    let request = request.ttl(args.ttl).grace(args.grace);
    let request = match args.wait {
        Some(limit) => request.wait_at_most(limit),
        None => request,
    };
    match args.max_hold {
        Some(limit) => request.max_hold(limit),
        None => request,
    }
}

/// What is said while a lease is waited for.
struct Notices {
    lease: String,
    store: String,
    limit: String,
    silent: bool,
    /// The grant that the last notice was about.
    told: Option<String>,
}

impl Notices {
    fn new(args: &Run, place: &Place) -> Self {
        let limit = match args.wait {
            Some(limit) => format!("waiting at most {}", span(limit)),
            None => "waiting as long as it takes".to_owned(),
        };
        Self {
            lease: args.lease.clone(),
            store: place.name().to_owned(),
            limit,
            silent: args.no_wait,
            told: None,
        }
    }

    /// Says what is new in it; true if that was anything.
    fn say(&mut self, progress: &Progress) -> bool {
        let Self { lease, store, limit, .. } = self;
        if self.silent {
            return false;
        }
        match progress {
            Progress::Waiting { holder, .. } => {
                let grant = holder.as_ref().map_or_else(String::new, grant);
                if self.told.as_ref() == Some(&grant) {
                    return false;
                }
                let holder = holder.as_ref().map_or_else(|| "somebody".to_owned(), held_by);
                say::line(format_args!("lease {lease:?} is held by {holder}; {limit} (store {store})"));
                self.told = Some(grant);
            }
            Progress::Retrying { error } => {
                say::line(format_args!("{error}; trying again, {limit} (store {store})"));
            }
            Progress::GrantedTooLate { token } => say::line(format_args!(
                "lease {lease:?} was granted (token {token}) too late to be of use, and given back; {limit}"
            )),
            _ => return false,
        }
        true
    }
}

/// What tells one grant from another.
fn grant(holder: &Holder) -> String {
    format!("{:?} {}", holder.token, holder.owner)
}
