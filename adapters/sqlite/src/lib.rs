//! The embedded store of Tenure: the processes of one machine share an SQLite database; there is no server.
//!
//! ```
//! use tenure_sqlite::SqliteStore;
//! let store = SqliteStore::open("/var/lib/example/leases.db")?;
//! assert_eq!(store.path().to_str(), Some("/var/lib/example/leases.db"));
//! # Ok::<(), tenure_store::core::ConfigError>(())
//! ```
//!
//! # What it promises
//!
//! - A lease passes on some milliseconds after it is given back, and as soon after its holder's process has
//!   died, without waiting for the TTL: see [`SqliteOptions::early`] for what this covers, and what not.
//! - What was acknowledged survives the death of any process at any time. A power failure ends all leases, as
//!   every restart of the machine does; tokens go on rising.
//! - An error, never a lease, when the file can't be trusted: of a newer format, of another program, damaged.
//!   When it is removed or replaced, or a link in its path leads to another one, all leases of the processes
//!   that had it open are lost, and they go on with what they find. They notice it with their next request:
//!   until then only tokens keep their work from that of those who find the new file.
//! - No call waits longer than its timeout, also when another process was stopped in the middle of a
//!   transaction and so keeps all others out.
//! - Timers, and records of jobs, outlive every restart. A claim of a tick passes on as a lease does, also at the death
//!   of its process; the file that proves this death shows a run of a job as abandoned, too.
//! - A member of the fleet is gone some milliseconds after its process has died, by the same proof, else when its TTL is
//!   over; the others hear of it at once. After a restart of the machine nobody is listed.
//!
//! It works on one machine only: a lease's end is on the clock of the machine (`CLOCK_BOOTTIME`, which goes on
//! in suspend and which nobody can set), and so is a claim's. Ticks are on the wall clock. Network file systems
//! are refused. Containers of one machine may share a store if its whole folder is mounted into them.
//!
//! # Files
//!
//! | file | is |
//! |---|---|
//! | `<path>` | the database, made with mode 0600; SQLite adds `-wal` and `-shm` while it is open |
//! | `<path>.live/` | a folder, mode 0700 |
//! | `<path>.live/<32 hexadecimal digits>` | the liveness file of one store handle, locked by it with flock(2) |
//! | `<path>.live/bell` | written to when those who wait should look |
//!
//! # Tables
//!
//! Programs in other languages may join; this is format 3. The database has `PRAGMA application_id`
//! 0x54656e72 ("Tenr") and its format in `PRAGMA user_version`, which every transaction has to look at: a
//! program must not touch a store of a format that it doesn't know. It is in WAL mode. Every change is made in
//! a transaction begun with `BEGIN IMMEDIATE`, and is short.
//!
//! Format 2 has neither `fleet` nor `member`, format 1 neither these nor `timer` nor `claim` nor `run`; they are the same in
//! all else. Whoever opens a database of them makes these tables and sets `user_version` to 3, in one transaction; programs
//! that know earlier formats only refuse the store from then on, and their leases end by their TTL.
//!
//! `store` has one row:
//!
//! | column | is |
//! |---|---|
//! | `one` | 1 |
//! | `boot` | the boot id of the machine (`/proc/sys/kernel/random/boot_id`) when it was last opened; whoever opens it and finds another one than the current empties `lease`, `waiter` and `member` and enters its own, unless a liveness file that is locked says the other one: then both run at the same time, and it must not use the store; nobody grants anything unless it finds its own |
//! | `time_namespace` | the inode of `/proc/self/ns/time`; a process with another one reads another clock, and must not use the store in this boot |
//! | `high_water` | the highest token ever given; a grant sets it to max(itself, the floor, the lease's last token, wall-clock microseconds since 1970 − 1) + 1 |
//!
//! `lease` has a row for each lease that is held, and for some that are over and not yet removed:
//!
//! | column | is |
//! |---|---|
//! | `name` | the name's UTF-8 bytes; the key |
//! | `format` | 1; a row of any other format is held, and none of its other columns is read; so is a row with values that can't be, for example negative times |
//! | `token` | the fencing token |
//! | `owner` | `{instance}/{incarnation}.{n}`; `evicted` once an operator has taken the lease away |
//! | `boot` | the boot id; in any other boot the lease is over |
//! | `expires` | nanoseconds on `CLOCK_BOOTTIME`; the lease is over from then on |
//! | `ttl` | nanoseconds |
//! | `since` | the time of the grant, microseconds since 1970, for people |
//! | `handle` | the 16 bytes that name the holder's liveness file |
//! | `early` | 1 if there is such a file |
//! | `host`, `pid`, `text` | what the holder keeps with the lease, for people; may be null |
//!
//! A renewal sets `expires`, `ttl`, `handle` and `early`, if `owner` and `token` are right and the lease is not
//! over; a release deletes the row.
//!
//! `waiter` has a row for each lease that a handle waits for:
//!
//! | column | is |
//! |---|---|
//! | `name`, `handle` | the lease and who waits; the key |
//! | `boot`, `expires` | as above: until when the row counts; whoever waits longer writes it anew |
//! | `since` | nanoseconds on `CLOCK_BOOTTIME`: since when it waits |
//! | `early` | 1 if the waiter has a liveness file |
//! | `chosen` | 0, or the token of the grant whose end chose this waiter; set back to 0 when it tries and finds the lease held |
//!
//! `timer` has a row for each timer:
//!
//! | column | is |
//! |---|---|
//! | `name` | as above; the key |
//! | `format` | 1; a timer whose row has another format, or values that can't be, is not used, only removed by an operator |
//! | `revision` | rises with each change of the schedule |
//! | `base_n`, `base_at` | the number and the time from which ticks are counted |
//! | `schedule` | as text, for example `every 60s` |
//! | `next_n`, `next_at`, `next_schedule` | the tick from which on another schedule counts, and that schedule; null if there is none |
//! | `last` | the last tick that some instance has come to |
//! | `claimed` | the last tick that was claimed or passed over |
//!
//! `claim` has a row for each claim of a tick that was not finished:
//!
//! | column | is |
//! |---|---|
//! | `name`, `tick` | the timer and the number of the tick; the key |
//! | `format` | 1; a row of any other format, or with values that can't be, is a claim that somebody has; it is not touched |
//! | `owner`, `token`, `boot`, `handle`, `early`, `host`, `pid`, `text` | as of a lease |
//! | `expires`, `ttl` | as of a lease; both 0 once the owner has given it back, for others to try |
//! | `begun`, `attempts` | how many runs were begun, and how many may be |
//! | `since` | the time of the grant |
//!
//! `run` has a row for each of the last hundred runs of a job:
//!
//! | column | is |
//! |---|---|
//! | `job`, `owner` | the job's name as bytes, and who runs it; the key |
//! | `format` | 1; a row of another format, or with values that can't be, is left out |
//! | `number` | 1 and up in the order in which the runs of the job were first heard of |
//! | `tick` | the number of the tick that it is for, or one of the user's; may be null |
//! | `started`, `ended` | the times of the first report, and of the one with the outcome; null until then |
//! | `outcome` | `succeeded`, `failed` or `stopped`; null until then |
//! | `text` | the user's; may be null |
//! | `boot`, `expires`, `handle`, `early` | of the last report, as of a lease: without an outcome the run goes on until then |
//! | `silent` | the same as `expires`, by the wall clock |
//!
//! `fleet` has one row:
//!
//! | column | is |
//! |---|---|
//! | `one` | 1 |
//! | `version` | of the members' view; whoever changes what others see of the members sets it to the highest of itself + 1 and wall-clock microseconds since 1970, and writes into `bell` after the commit |
//!
//! `member` has a row for each process of an instance that is listed, and for those that are remembered:
//!
//! | column | is |
//! |---|---|
//! | `instance`, `incarnation` | the name's UTF-8 bytes, and 16 bytes, the highest first; the key |
//! | `format` | 1; a row of any other format, or with values that can't be, is nobody in the view; only its own process makes it anew |
//! | `sequence` | the number of its last heartbeat |
//! | `joined` | when it joined; never changed |
//! | `boot` | as of a lease; in any other boot the row is nobody |
//! | `since` | nanoseconds on `CLOCK_BOOTTIME`: since when it has been listed without a gap |
//! | `expires`, `ttl` | as of a lease: the last heartbeat came at `expires` − `ttl` |
//! | `listed` | 1 as long as it is counted in the view; whoever sends a heartbeat, leaves or marks first sets it to 0 where `expires` is over, and deletes what is 0 and `expires` + `ttl` is over, or `expires` and `gone` |
//! | `gone` | 1 for the tombstone of one that left |
//! | `draining`, `marked`, `knows_mark` | 1 if it drains by its own will; if an operator wants it to; if a heartbeat has said since that it knows |
//! | `digests` | eight bytes for each, the highest first; at most 64 |
//! | `labels` | for each in the order of their names' bytes: a byte with the length of its name, the name, a byte with the length of its value, the value |
//! | `handle`, `early` | of the last heartbeat, as of a lease: whoever finds that the handle has died deletes the row and gives the view its next version |
//! | `host`, `pid`, `text` | as of a lease |
//!
//! `joined`, `base_at`, `next_at`, `started`, `ended`, `silent` and the `since` of a claim are nanoseconds since 1970 on the wall
//! clock, negative before that. What an operation makes of a timer and its claims is written down in `tenure-store`, at
//! `TimerRecord::apply`, and what it makes of a member at `MemberRecord`; programs in other languages have to follow them
//! to the letter.
//!
//! Whoever ends a grant sets `chosen` for the two that have waited longest of those with 0, of other handles
//! and not dead. Whoever ends or makes a grant that others wait for writes a byte into `bell` after the commit.
//!
//! # Liveness files
//!
//! A handle draws 128 random bits, makes the file with `O_EXCL`, open for writing, locks it exclusively, makes
//! sure that it still has a name, and writes two lines into it: its boot id, and the file's device and inode
//! numbers with a space between them. Only then may a row have these bits. It keeps the lock as long as it lives,
//! and removes the file before it gives the lock up. Whoever wants to know whether a handle lives opens its file
//! without creating it and tries a shared lock: not granted means alive; granted on a file that still has a name,
//! and has the numbers that it says, means dead; everything else, also a copy, means unknown. A file may be removed
//! under a shared lock once no lease, claim, run or listed member that is not over has its bits.

#[cfg(not(unix))]
compile_error!("tenure-sqlite works on Unix systems only: it needs flock(2) and a clock that counts suspend");

mod clock;
mod database;
mod error;
mod events;
mod file;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod liveness;
mod members;
mod options;
mod queue;
mod record;
mod runs;
mod schema;
mod store;
mod tables;
mod timers;
mod tx;
mod watcher;
mod worker;

pub use options::SqliteOptions;
pub use store::SqliteStore;
