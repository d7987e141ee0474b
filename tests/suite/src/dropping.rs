//! Dropping anything anywhere neither blocks nor panics, and leaves nothing behind.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, mpsc};
use std::thread;

use tenure_driver::store_contract::SimpleStore;
use tenure_driver::{Builder, Tenure};
use tenure_memory::MemoryStore;

use crate::GENEROUS;
use crate::Host;
use crate::counted::{Counted, Counts};
use crate::waiting::until;

mod on_threads;
mod places;
mod things;

use places::{Dropping, Place, at_its_end, in_a_runtime};
use things::{Maker, makers};

/// Panics in this process so far, those included that somebody caught.
static PANICS: AtomicUsize = AtomicUsize::new(0);
/// What is tried now.
static NOW: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn now(change: impl FnOnce(&mut Vec<String>)) {
    change(&mut NOW.lock().unwrap_or_else(PoisonError::into_inner));
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            now(|cases| eprintln!("a panic with {cases:?}:"));
            before(info);
        }));
    });
}

/// Everything that a user may hold is dropped in every place, as the last handle and not, with the driver in the runtime or
/// on a thread of its own. Places at the end of a runtime are left out where it has none.
///
/// # Panics
/// If something blocks, panics, or leaves something behind. Panics elsewhere in the process meanwhile count, too.
pub fn anything_can_be_dropped_anywhere<H: Host>(own_thread: bool) {
    count_panics();
    let mut everywhere = in_a_runtime::<H>();
    if H::new().shut_down() {
        everywhere.extend(at_its_end());
    }
    let (all, everywhere) = (Arc::new(makers()), Arc::new(everywhere));
    let mut cases = 0;
    for thing in 0..all.len() {
        for place in 0..everywhere.len() {
            for last in [false, true] {
                if last && matches!(everywhere[place].drop, Dropping::With(_)) {
                    continue;
                }
                let (all, everywhere) = (Arc::clone(&all), Arc::clone(&everywhere));
                let name = format!(
                    "{}, dropped {}{}",
                    all[thing].name,
                    everywhere[place].name,
                    if last { ", as the last handle" } else { "" }
                );
                watched(name, move || one::<H>(thing, place, &all, &everywhere, last, own_thread));
                cases += 1;
            }
        }
    }
    println!("{} things in {} places, {cases} cases", all.len(), everywhere.len());
}

/// Runs it on a thread of its own.
fn watched(name: String, case: impl FnOnce() + Send + 'static) {
    let panics = PANICS.load(Ordering::SeqCst);
    now(|cases| cases.push(name.clone()));
    let (done, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        // Dropped also if it panics.
        let _done = done;
        case();
    });
    let ended = ended.recv_timeout(GENEROUS * 2);
    assert!(ended != Err(mpsc::RecvTimeoutError::Timeout), "{name}: it blocks");
    assert!(thread.join().is_ok() && PANICS.load(Ordering::SeqCst) == panics, "{name}: it panics");
    now(|cases| cases.retain(|case| *case != name));
}

/// What is left once a thing was dropped.
struct Left {
    tenure: Option<Tenure>,
    store: MemoryStore,
    counts: Arc<Counts>,
    own_thread: bool,
}

fn one<H: Host>(
    thing: usize,
    place: usize,
    all: &Arc<Vec<Maker<Counted<H::Runtime>>>>,
    everywhere: &Arc<Vec<Place<H>>>,
    last: bool,
    own_thread: bool,
) {
    let (all, everywhere) = (Arc::clone(all), Arc::clone(everywhere));
    let stage = thread::spawn(move || {
        let (maker, place) = (&all[thing], &everywhere[place]);
        let host = H::new();
        let prepared = (place.prepare)(&host);
        let store = MemoryStore::new();
        let (counts, tenure, thing) = host.block_on(async {
            let runtime = Counted::new(host.runtime());
            let builder = Builder::new(runtime.clone()).store(store.handle());
            let builder = if own_thread { builder.on_own_thread() } else { builder };
            let tenure = builder.start().expect("it can be started");
            let thing = (maker.make)(runtime.clone(), tenure.clone()).await;
            (runtime.counts(), tenure, thing)
        });
        let kept = (!last).then(|| tenure.clone());
        let host = match place.drop {
            Dropping::Alone(act) => {
                drop(tenure);
                act(host, prepared, thing)
            }
            Dropping::With(act) => act(host, tenure, thing),
        };
        let left = Left { tenure: kept, store, counts, own_thread };
        match host {
            Some(host) => {
                left.look(&host, true);
                host.shut_down();
                None
            }
            None => Some(left),
        }
    });
    // Joined: what a thread keeps is gone by then.
    if let Some(left) = stage.join().expect("it has not panicked") {
        let host = H::new();
        left.look(&host, false);
        host.shut_down();
    }
}

impl Left {
    /// Nothing is left, unless the driver could not give it back because it ended with its runtime.
    fn look<H: Host>(self, host: &H, lives: bool) {
        let Self { tenure, store, counts, own_thread } = self;
        host.block_on(async {
            if let Some(tenure) = tenure {
                tenure.shutdown().await.expect("all is given back");
            }
            let runtime = host.runtime();
            until(&runtime, "no task is left", || counts.tasks() == 0).await;
            assert_eq!((counts.sleeps(), counts.alarms()), (0, 0));
            if lives || own_thread {
                assert_eq!(store.list(None, 10).await.expect("it answers"), []);
                assert_eq!(store.members(None, 10).await.expect("it answers"), []);
            }
        });
    }
}
