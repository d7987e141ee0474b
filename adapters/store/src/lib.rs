//! The contract between Tenure and its stores.
//!
//! A store keeps one record per lease that is held, one per timer, the last runs of each job, and one record per member of
//! the fleet. The core decides when to ask it for what; an adapter carries that out. This page is what an adapter must keep
//! for the whole to be safe. To write one, implement [`SimpleStore`] (there is a sketch at the trait, and a whole one in
//! `examples/own_store.rs`), and hold it against the properties of the module `conformance` (feature `conformance`).
//!
//! # Atomic, on one clock
//!
//! Each operation is atomic at the store: two that meet are executed one after the other. A record is *over*
//! once its TTL has run out by the store's own clock; nothing else ends it but [`Release`] and
//! [`Eviction::Delete`]. Only durations go to the store and come back; the time of a client never does. How
//! much the store's clock may be off is stated in [`Limits::clock`], and the core takes it off every TTL: a
//! store must not grant a lease before the holder's validity, counted from when the holder sent its request,
//! is over.
//!
//! # The operations
//!
//! [`Acquire`] grants the lease if there is no record, or none that is not over. If the record is of the
//! owner that asks, it confirms: the same token again, and the TTL begins anew, as in a renewal. So to ask
//! again after a lost answer is harmless. Every other owner is refused, also another acquisition of the same
//! process, and the same process once it was started again: owners are compared as whole texts,
//! `{instance}/{incarnation}.{n}`.
//!
//! [`Renew`] begins the TTL anew if the record is not over and has this owner *and* this token. It never
//! makes a record. Its [`Renewed::NotYours`] is definite: the core stops the work at once.
//!
//! [`Release`] removes the record if it has this owner, and this token if one is given. It never ends the
//! grant of another, however late it comes.
//!
//! An operation that is executed twice does what it does once: networks repeat, and so do clients that time
//! out.
//!
//! # What failed, and what is not known
//!
//! An error says who can mend it: [`StoreErrorKind`]. [`StoreError::transient`] promises that nothing was
//! done. Whatever may have been executed, or may yet be (a timeout, a connection that broke with the request
//! under way), is [`StoreError::unknown`]. An adapter repeats only what the store certainly did not execute: a
//! script that was not loaded, a redirect. It does not repeat after a timeout, and it turns off its client
//! library's own retries: trying again is the core's, which knows how much time is left. An adapter ends
//! each operation by the request's `timeout`, so that one without an answer keeps no others waiting. Its future
//! may be dropped at any point; then the outcome is unknown, and later operations must work all the same.
//!
//! # Tokens
//!
//! A new grant has a [token](core::Token) above that of every earlier grant of the lease, whatever ended that:
//! release, expiry, eviction, a restart of the store; and above the request's `floor`, the highest token that
//! the asking process has seen. A renewal and a confirmation keep the token; a grant after any gap has a new
//! one, also for the same owner. Zero is never given.
//!
//! Where the store has no number of its own that never falls, a token is
//! `max(high water, floor, wall-clock microseconds - 1) + 1` with one high water for all leases of a store: so
//! no trace of a lease need be kept when it is over, and tokens rise even if the store lost everything. A
//! floor so high that tokens could run out is refused ([`check_floor`]), never wrapped around. A store whose
//! tokens the server gives, and which cannot lift them, may grant below the floor: the core gives such a grant
//! back and reports that the store went back in time.
//!
//! # Waiters and hints
//!
//! A waiter sleeps until a hint comes, or until the TTL that it was told of is over. Hints make hand-over
//! fast; they are never evidence, and a store without any is complete. They are lossy: [`Hint::Resync`] says
//! that some may be missing, after a reconnection or when a queue ran over. Queues are bounded: [`HintQueue`] is one.
//!
//! A store handle *watches* a lease between [`watch`](SimpleStore::watch) and
//! [`unwatch`](SimpleStore::unwatch): it hears of every release ([`Wake::Free`](core::Wake::Free)), also of
//! one by an operator, and of every grant to another handle ([`Wake::Held`](core::Wake::Held)). Once `watch`
//! has returned, nothing is missed without a `Resync`.
//!
//! A handle *waits* for a lease once it watches it, or once it was refused with [`Acquire::wait`] set. A
//! release names up to two of the waiters, those that have waited longest, as `chosen`, so that not all try at
//! once; never one of the handle that releases, whose process knows already; and tells the releaser whether it
//! named any. Whoever was named must register again to be named again. Registrations end by themselves if
//! they are not renewed, somewhat after the TTL that the waiter was told of, so that a dead process is skipped.
//! No order among waiters is promised.
//!
//! # Timers
//!
//! A timer's record says from where ticks are counted, and by which schedule: [`TimerRecord`]. It has no end of its own;
//! [`TimerAct::Forget`] removes it. What an operation makes of it is decided in one place, by [`TimerRecord::apply`]: an
//! adapter loads the record, lets `apply` act on it, and saves it, as one atomic step ([`SimpleStore::timer`]; the store
//! of the example does no more). It gives `apply` the [time of the store](StoreTime), read within that step, and a
//! source of tokens. What [`Limits::check`] refuses never gets that far.
//!
//! - Ticks are on the store's *wall clock*, which may step; the core deals with that. A clock before 1970 or far in
//!   the future is a time like any other.
//! - Only a reader makes a record, with the last tick that it knows of. So the numbers of a timer that was forgotten, or
//!   lost with its store, go on and don't begin anew. [`TimerAnswer::Gone`] sends the others back to reading.
//! - A change names the revision that it is for; of several who want the same change one makes it. It is answered with
//!   the record as it then is.
//! - A record that can't be read, or is of a newer format, is an error that names the timer.
//!
//! # Claims
//!
//! A claim lets one instance run one tick. It is a lease in all that matters, and the same rules hold: owners are
//! compared as whole texts, a confirmation and a renewal begin the TTL anew, a token is above those of all earlier
//! claims of the timer, an expired claim is never revived by a renewal, nobody ends the claim of another. It goes by the
//! clock of the leases. Where a store can prove that the owner of a lease has died it does the same for claims: it says so
//! by a [`Claim::ends`] in the past.
//!
//! A tick is granted if it is above the last that was claimed; or if it was claimed, its claim is over, and fewer runs
//! were begun than there may be. What was once promised, at most so many attempts, holds for those who come later with
//! more. The answers are definite, but for [`TimerAnswer::Held`]: whoever gets that asks again once the remaining TTL is
//! over. There are no hints about claims.
//!
//! A claim that was finished leaves nothing; there are at most 16 others
//! ([`PeriodicOptions::MOST_RUNS`](core::PeriodicOptions::MOST_RUNS)). So a record has some 40 kB at the very most. A
//! claim that can't be read, or is of a newer format, is held by somebody, never free.
//!
//! # Stores that can only compare and set
//!
//! A store that can't run [`TimerRecord::apply`] inside of its own transaction (a script on a server, a bucket of keys with
//! revisions) does it in steps:
//!
//! 1. It reads the record, its revision, and the store's time, in one request or the time after the record.
//! 2. It lets `apply` act on the record, at that time.
//! 3. It writes the record back on the condition that the revision is the same; not if `apply` changed nothing.
//!
//! If the condition did not hold, nothing was done, and it begins again, as long as the request's `timeout` allows; then it
//! is [`StoreError::transient`]. A write without an answer is [`StoreError::unknown`], and is not repeated. The operation
//! counts as executed at the time that was read: nothing happened to the record since, and a TTL that begins a little
//! early ends a little early, still later than what the owner relies on, which counts from when it asked.
//!
//! The token of a grant must be known to `apply`: a counter that is raised beforehand does (tokens may be left out). Where
//! the token is the number of the write itself, it is not known until then. Such a store gives `apply`
//! [`Token::ZERO`](core::Token::ZERO), puts the number of the write into the answer, and, whenever it reads a record, puts
//! the number of the write that it read in the place of a zero: there is never more than one.
//!
//! # Records of jobs
//!
//! They are for people, and decide nothing. The first [`RunReport`] of a run makes its record, each one says that it
//! lives, and the first with an outcome ends it: [`KeptRun`] does that. Reports are not operations of a batch; they may
//! come twice, late, or not at all. The last hundred runs of a job are kept. A run without an outcome whose TTL is over is
//! told as [`RunState::Abandoned`]; nobody has to come and write that down. A record that can't be read is left out.
//!
//! # Members
//!
//! A member is one incarnation of an instance: two processes of one name are two members. Its record is made by its first
//! [`Heartbeat`]; [`MemberRecord::beat`], [`MemberRecord::leave`] and [`MemberRecord::mark`] decide what becomes of it, and
//! [`Fleet`] does all of it for an adapter that has the members in one place (the store of the example saves and loads
//! one). Members decide nothing about a lease.
//!
//! - **Who is listed.** Whoever's last heartbeat is less than its TTL ago, by the clock of expiry that leases go by, and who
//!   has not left. Nobody has to come and end it. Where a store can prove that the process has died, its members are gone
//!   at once, as its leases are. After the end a record is remembered for another TTL.
//! - **Sequence.** The heartbeats of an incarnation are numbered. One whose number is not above the last changes nothing
//!   and extends nothing, and is answered like any other while the member is listed; one that comes after its end is
//!   [`StoreError::rejected`].
//! - **Joined** is the wall clock at the first heartbeat, and is written once. A store that has no record takes over what
//!   the heartbeat says. The **age** is another thing: the time since the member has been listed without a gap, by the clock
//!   of expiry.
//! - **Leave** leaves a tombstone for the TTL that it gives, also where there was no record: so no heartbeat that is late
//!   brings a ghost back, whatever its number. To leave twice is to leave.
//! - **A mark** ([`DrainMark`]) stands in the record beside what the member says of itself. Heartbeats never touch it, and are
//!   answered with it ([`Presence::drain`](core::Presence::drain)); others see a member that drains. It concerns those who
//!   are listed at the time, not those who come later. Where there is no record any more it is as the heartbeat says:
//!   whoever could not be heard of for long, or whose record was lost, comes back drained, until the operator undoes it.
//! - **The version** of the view rises, above the last and above the wall clock's microseconds ([`next_version`]), when
//!   somebody joins, leaves, is gone, comes back, is marked or no longer, or says something else of its drain, digests or
//!   labels. It stays with every other heartbeat. A heartbeat is answered with the whole view, sorted by identity and the
//!   asker among it, unless it names this very version.
//! - **Hints.** A handle that has sent a heartbeat gets [`Hint::Members`] whenever the version is another than the last that
//!   it was told, by an answer or a hint. Watching is not needed. [`Hint::Resync`] stands for it, too.
//! - A record that can't be read, or is of a newer format, is nobody in the view, and never fails the heartbeat of another;
//!   [a list](SimpleStore::members) names it with [its problem](MemberEntry::problem). The next heartbeat of that very
//!   process makes it anew.
//!
//! A store that can only compare and set keeps a record for each member, and one for the version, with a digest of what
//! others see of those that it stands for. A heartbeat writes its own record on the condition that it is as it was read.
//! Then it reads the version, all records and the store's time; if what is to be seen is another thing than that digest
//! says, it writes the next version with the new digest, on the condition that nobody has, else it reads again. So what it
//! answers with belongs together, and the version also rises for those who are gone by time, and for a change whose writer
//! died before it could raise it.
//!
//! # Operators
//!
//! [`Eviction::Replace`] puts an owner in place that no process can have, for example `evicted`, which has no
//! slash, and keeps the token and the rest of the TTL: the holder's next renewal fails, and nobody else starts
//! before the holder must have stopped. [`Eviction::Delete`] frees the lease at once.
//!
//! # Records and names
//!
//! A record carries what [`Holder`] shows. A record of a newer format, or one that can't be read, counts as
//! held, never as free, and [`Holder::problem`] says why. Formats and key layouts are documented and versioned,
//! so that programs in other languages can join. What is over leaves nothing behind for good.
//!
//! Any UTF-8 text of 1 to 255 bytes names a lease, and no two texts name the same one: no folding of case, no
//! Unicode normalization, no trimming, no cutting; where a store forbids a character the name is encoded
//! reversibly. The same holds for timers and jobs, which have names of their own, and for instances, whose names have no
//! control characters and at most 200 bytes: a lease, a timer, a job and an instance of one name have nothing to do with
//! each other. Listing gives back the names as they were.
//!
//! # Bounds
//!
//! A TTL outside of [`Limits`], metadata, a schedule or a text that is too long, too many digests, a floor or the number of
//! a tick or of a heartbeat that is too high: all are refused as [`StoreError::rejected`] before anything is sent, with the name, the value and the
//! bound; [`Limits::check`], [`Limits::check_report`], [`check_floor`] and [`check_claim_floor`] do it. A store never keeps a lease for another time
//! than was asked for.
//!
//! # Batches
//!
//! The driver hands over all operations of one turn at once, to [`Store::execute`]. Those on one lease, on one timer, or on
//! one member are carried out in their order; one that fails or is malformed has no effect on the others; each outcome is
//! delivered as soon as it is known; what has no outcome when [`Replies`] is dropped is unknown. Every
//! [`SimpleStore`] is a [`Store`] that runs the operations one by one, those on different leases and timers side by side.
//!
//! # A driver of one's own
//!
//! Programs with a loop of their own need no runtime of ours: the core says what to do, a store does it, and what lies
//! between them is here. [`Operation::of`] makes the operation that a command of a [`Node`](core::Node) asks for, and
//! [`OperationKind::event`] makes the event of its outcome. A driver then
//!
//! - polls the node until it says [`Wait`](core::Output::Wait), hands operations to [`Store::execute`], with a [`Replies`]
//!   that brings each outcome back, and everything else to the application;
//! - waits for an outcome, for the application, or until the instant that the node named, and hands in what came;
//! - keeps operations on one [subject](Operation::subject) in their order, by handing them over together or one after the
//!   other;
//! - goes by a [clock](clock::now) that counts while the machine sleeps, and wakes from sleep by it: a wait that stands
//!   still meanwhile is cut short, for an early [`Timeout`](core::Event::Timeout) is harmless;
//! - answers [`Command::Watch`](core::Command::Watch): with [`Watching`](core::Reply::Watching) once [`Store::watch`] has
//!   returned, whose [`Hint`]s it hands in, or with [`Failed`](core::Reply::Failed) if it has none.
//!
//! On plain threads these are forty lines, and less where time is virtual: `examples/own_driver.rs` and
//! `examples/own_driver_virtual.rs` in the repository.
//!
//! # Connecting
//!
//! Constructors are synchronous and do not connect: the first operation does, in the context of the runtime
//! that polls it. Secrets never appear in an error or in `Debug`.

mod check;
pub mod clock;
mod command;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod hints;
mod job;
mod member;
mod operation;
mod replies;
mod timer;
mod traits;
pub mod url;

pub use check::{check_claim_floor, check_floor};
pub use command::OperationKind;
pub use error::{StoreError, StoreErrorKind, Topic};
pub use hints::{HintQueue, HintStream};
pub use job::{JobRecord, KeptRun, RunOutcome, RunRecord, RunReport, RunState};
pub use member::{Changed, DrainMark, Fleet, Heartbeat, Leave, MemberEntry, MemberRecord, next_version};
pub use operation::{
    Acquire, Acquired, Answer, Eviction, Holder, LeaseRecord, Metadata, Operation, Outcome, Release,
    Released, Renew, Renewed, Subject,
};
pub use replies::Replies;
pub use tenure_core as core;
pub use timer::{Claim, StoreTime, TickClaim, TimerAct, TimerAnswer, TimerEntry, TimerRecord, TimerRequest};
pub use traits::{Hint, Hints, Limits, SimpleStore, Store};
