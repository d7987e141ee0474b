//! A whole store of one's own: leases, timers and members in a text file, shared by the processes of one machine. It
//! keeps no records of jobs.
//!
//! It shows what an adapter has to do, and is as slow as it is short: each operation reads the file under a
//! lock, changes it, and puts the new one in its place. `tests/own_store.rs` holds it against the conformance
//! suite. Run it with `cargo run -p tenure-store --example own_store`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_store::core::{
    Digest, Identity, Instant, Labels, LeaseName, NextSchedule, Presence, Rate, StoreClock, Tick, TimerName,
    Timestamp, Token,
};
use tenure_store::{
    Acquire, Acquired, Claim, DrainMark, Eviction, Fleet, Heartbeat, Holder, LeaseRecord, Leave, Limits,
    MemberEntry, MemberRecord, Metadata, Release, Released, Renew, Renewed, SimpleStore, StoreError,
    StoreTime, TimerAnswer, TimerEntry, TimerRecord, TimerRequest, check_claim_floor, check_floor,
};

/// The leases, timers and members in the file `leases` of a directory.
pub(crate) struct FileStore {
    pub(crate) directory: PathBuf,
}

#[derive(Default)]
struct Leases {
    high_water: u64,
    held: BTreeMap<LeaseName, Record>,
    timers: BTreeMap<TimerName, TimerRecord>,
    fleet: Fleet,
}

/// Times are microseconds since 1970.
struct Record {
    owner: String,
    token: u64,
    ttl: u64,
    ends: u64,
    since: u64,
    metadata: Metadata,
}

const HIGHEST_FLOOR: Token = Token::new(u64::MAX / 2);

impl SimpleStore for FileStore {
    fn limits(&self) -> Limits {
        let mut limits = Limits::DEFAULT;
        // The wall clock is all that processes share here. It is taken to be steered, not set: whoever sets
        // it by more than this while leases are held has only the tokens left.
        limits.clock = StoreClock {
            drift: Rate::ONE_PERCENT,
            quantum: Duration::from_millis(1),
            step: Duration::from_millis(100),
        };
        limits.min_ttl = Duration::from_millis(500);
        limits
    }

    async fn acquire(&self, request: Acquire) -> Result<Acquired, StoreError> {
        self.limits().check_acquire(&request)?;
        check_floor(&request, HIGHEST_FLOOR)?;
        self.change(|leases, now| {
            let Acquire { name, owner, ttl, floor, metadata, .. } = request;
            let (owner, ttl) = (owner.to_string(), micros(ttl));
            match leases.held.get_mut(&name) {
                Some(record) if record.owner == owner => {
                    (record.ttl, record.ends) = (ttl, now + ttl);
                    Acquired::Granted(Token::new(record.token))
                }
                Some(record) => Acquired::Held(record.holder(now)),
                None => {
                    let token = next_token(&mut leases.high_water, floor, now);
                    let (ends, since) = (now + ttl, now);
                    leases
                        .held
                        .insert(name, Record { owner, token: token.get(), ttl, ends, since, metadata });
                    Acquired::Granted(token)
                }
            }
        })
    }

    async fn renew(&self, request: Renew) -> Result<Renewed, StoreError> {
        self.limits().check_renew(&request)?;
        self.change(|leases, now| match leases.held.get_mut(&request.name) {
            Some(record)
                if record.owner == request.owner.to_string() && record.token == request.token.get() =>
            {
                (record.ttl, record.ends) = (micros(request.ttl), now + micros(request.ttl));
                Renewed::Renewed
            }
            _ => Renewed::NotYours,
        })
    }

    async fn release(&self, request: Release) -> Result<Released, StoreError> {
        let Release { name, owner, token, .. } = request;
        let owner = owner.to_string();
        self.change(|leases, _| {
            let is_right = |record: &Record| {
                record.owner == owner && token.is_none_or(|token| token.get() == record.token)
            };
            if !leases.held.get(&name).is_some_and(is_right) {
                return Released::NotYours;
            }
            leases.held.remove(&name);
            Released::Released { others_chosen: false }
        })
    }

    async fn inspect(&self, name: LeaseName) -> Result<Option<LeaseRecord>, StoreError> {
        self.change(|leases, now| leases.record(&name, now))
    }

    async fn list(&self, after: Option<LeaseName>, most: usize) -> Result<Vec<LeaseRecord>, StoreError> {
        self.change(|leases, now| {
            let after = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let names = leases.held.range::<LeaseName, _>((after, Bound::Unbounded)).take(most);
            names.map(|(name, record)| LeaseRecord::new(name.clone(), record.holder(now))).collect()
        })
    }

    async fn evict(&self, name: LeaseName, how: Eviction) -> Result<Option<LeaseRecord>, StoreError> {
        self.change(|leases, now| {
            let evicted = leases.record(&name, now)?;
            match how {
                // No process has an owner without a slash.
                Eviction::Replace => leases.held.get_mut(&name)?.owner = "evicted".to_owned(),
                Eviction::Delete => drop(leases.held.remove(&name)),
            }
            Some(evicted)
        })
    }

    /// What becomes of a timer and its claims is decided by [`TimerRecord::apply`]: load, apply, save.
    async fn timer(&self, request: TimerRequest) -> Result<TimerAnswer, StoreError> {
        self.limits().check_timer(&request)?;
        check_claim_floor(&request, HIGHEST_FLOOR)?;
        self.change(|leases, now| {
            let mut record = leases.timers.remove(&request.name);
            let token = |floor| Ok(next_token(&mut leases.high_water, floor, now));
            let answer = TimerRecord::apply(&mut record, &request.act, store_time(now), token);
            if let Some(record) = record {
                leases.timers.insert(request.name, record);
            }
            answer
        })?
    }

    async fn timers(&self, after: Option<TimerName>, most: usize) -> Result<Vec<TimerEntry>, StoreError> {
        self.change(|leases, now| {
            let after = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let timers = leases.timers.range::<TimerName, _>((after, Bound::Unbounded)).take(most);
            let entry = |(name, record): (&TimerName, &TimerRecord)| {
                TimerEntry::new(name.clone(), record.clone(), store_time(now))
            };
            timers.map(entry).collect()
        })
    }

    /// What becomes of the members, and when their version rises, is decided by [`Fleet`].
    async fn heartbeat(&self, beat: Heartbeat) -> Result<Presence, StoreError> {
        self.limits().check_heartbeat(&beat)?;
        let answer = self.change(|leases, now| leases.fleet.beat(&beat, store_time(now)))?;
        answer.map(|(presence, _)| presence).map_err(|error| error.about(&beat.identity))
    }

    async fn leave(&self, leave: Leave) -> Result<(), StoreError> {
        self.limits().check(&leave.clone().into())?;
        self.change(|leases, now| leases.fleet.leave(&leave, store_time(now))).map(drop)
    }

    async fn members(&self, after: Option<Identity>, most: usize) -> Result<Vec<MemberEntry>, StoreError> {
        self.change(|leases, now| leases.fleet.list(after.as_ref(), most, store_time(now)))
    }

    async fn mark(&self, mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        self.change(|leases, now| leases.fleet.mark(&mark, store_time(now)).0)
    }
}

/// Above all before, above the floor, and not below the clock, should the file get lost.
fn next_token(high_water: &mut u64, floor: Token, now: u64) -> Token {
    *high_water = (*high_water).max(floor.get()).max(now.saturating_sub(1)) + 1;
    Token::new(*high_water)
}

/// One clock for everything, here.
fn store_time(micros: u64) -> StoreTime {
    let since_1970 = Duration::from_micros(micros);
    StoreTime { wall: Timestamp::EPOCH + since_1970, now: Instant::ZERO + since_1970 }
}

impl FileStore {
    /// One operation: the whole of it under the lock, so that it is atomic. It blocks the thread that polls,
    /// for as long as others have the lock; a store for more than an example would use a thread of its own.
    fn change<T>(&self, act: impl FnOnce(&mut Leases, u64) -> T) -> Result<T, StoreError> {
        // Whatever fails here, the file is as it was: the new one takes its place in a single step.
        let failed =
            |error: io::Error| StoreError::transient(format!("{}: {error}", self.directory.display()));
        let lock = File::create(self.directory.join("lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let text = match fs::read_to_string(self.directory.join("leases")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => "0 0 0\n".to_owned(),
            read => read.map_err(failed)?,
        };
        // What can't be read is never taken for free.
        let mut leases = Leases::read(&text).ok_or_else(|| {
            let file = self.directory.join("leases");
            StoreError::rejected(format!("{} is damaged: delete it once nothing runs", file.display()))
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, micros);
        leases.held.retain(|_, record| record.ends > now);
        let answer = act(&mut leases, now);
        fs::write(self.directory.join("new"), leases.write()).map_err(failed)?;
        fs::rename(self.directory.join("new"), self.directory.join("leases")).map_err(failed)?;
        Ok(answer)
    }
}

impl Leases {
    fn record(&self, name: &LeaseName, now: u64) -> Option<LeaseRecord> {
        self.held.get(name).map(|record| LeaseRecord::new(name.clone(), record.holder(now)))
    }

    /// The high water of the tokens on the first line, with the version of the members and how many are listed; then a
    /// line for each lease, timer, claim and member.
    fn write(&self) -> String {
        let mut text = format!("{} {} {}\n", self.high_water, self.fleet.version(), self.fleet.listed());
        for (name, record) in &self.held {
            let Record { owner, token, ttl, ends, since, metadata } = record;
            let (name, owner, people) = (escape(name.as_str()), escape(owner), write_metadata(metadata));
            text += &format!("lease {name} {owner} {token} {ttl} {ends} {since} {people}\n");
        }
        for (name, record) in &self.timers {
            let TimerRecord { revision, base, schedule, next, last, claimed, claims } = record;
            let (name, schedule) = (escape(name.as_str()), escape(schedule));
            let next = next.as_ref().map_or("- - -".to_owned(), |NextSchedule { at, schedule }| {
                format!("{} {} {}", at.n, at.at.as_nanos(), escape(schedule))
            });
            let (n, at) = (base.n, base.at.as_nanos());
            text += &format!("timer {name} {revision} {n} {at} {schedule} {next} {last} {claimed}\n");
            for Claim { tick, owner, token, ttl, ends, begun, attempts, since, metadata } in claims {
                let (owner, people) = (escape(owner), write_metadata(metadata));
                let (ttl, ends, since) = (ttl.as_nanos(), ends.as_nanos(), since.as_nanos());
                text += &format!(
                    "claim {name} {tick} {owner} {token} {ttl} {ends} {begun} {attempts} {since} {people}\n"
                );
            }
        }
        for (identity, record) in self.fleet.records() {
            text += &format!("member {} {}\n", escape(&identity.to_string()), write_member(record));
        }
        text
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let [high_water, version, listed] = lines.next()?.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let mut leases = Self { high_water: high_water.parse().ok()?, ..Self::default() };
        let mut members = BTreeMap::new();
        for line in lines {
            let fields: Vec<&str> = line.split(' ').collect();
            match fields[..] {
                ["lease", name, owner, token, ttl, ends, since, host, pid, note] => {
                    let record = Record {
                        owner: unescape(owner)?,
                        token: token.parse().ok()?,
                        ttl: ttl.parse().ok()?,
                        ends: ends.parse().ok()?,
                        since: since.parse().ok()?,
                        metadata: read_metadata(host, pid, note)?,
                    };
                    leases.held.insert(LeaseName::new(unescape(name)?).ok()?, record);
                }
                ["timer", name, revision, n, at, schedule, next_n, next_at, next_schedule, last, claimed] => {
                    let record = TimerRecord {
                        revision: revision.parse().ok()?,
                        base: read_tick(n, at)?,
                        schedule: unescape(schedule)?.into(),
                        next: match next_n {
                            "-" => None,
                            n => Some(NextSchedule {
                                at: read_tick(n, next_at)?,
                                schedule: unescape(next_schedule)?.into(),
                            }),
                        },
                        last: last.parse().ok()?,
                        claimed: claimed.parse().ok()?,
                        claims: Vec::new(),
                    };
                    leases.timers.insert(TimerName::new(unescape(name)?).ok()?, record);
                }
                ["claim", name, tick, owner, token, ttl, ends, begun, attempts, since, host, pid, note] => {
                    let claim = Claim {
                        tick: tick.parse().ok()?,
                        owner: unescape(owner)?,
                        token: Token::new(token.parse().ok()?),
                        ttl: Duration::from_nanos(ttl.parse().ok()?),
                        ends: Instant::from_nanos(ends.parse().ok()?),
                        begun: begun.parse().ok()?,
                        attempts: attempts.parse().ok()?,
                        since: Timestamp::from_nanos(since.parse().ok()?),
                        metadata: read_metadata(host, pid, note)?,
                    };
                    leases.timers.get_mut(&TimerName::new(unescape(name)?).ok()?)?.claims.push(claim);
                }
                ["member", identity, ref record @ ..] => {
                    members.insert(Identity::parse(&unescape(identity)?)?, read_member(record)?);
                }
                _ => return None,
            }
        }
        leases.fleet = Fleet::restore(version.parse().ok()?, listed.parse().ok()?, members);
        Some(leases)
    }
}

fn write_member(record: &MemberRecord) -> String {
    let MemberRecord { sequence, joined, since, heard, ttl, left, draining, marked, .. } = record;
    let MemberRecord { knows_mark, digests, labels, metadata, .. } = record;
    let (joined, since, heard, ttl) = (joined.as_nanos(), since.as_nanos(), heard.as_nanos(), ttl.as_nanos());
    let digests: String = digests.iter().map(|digest| format!("{},", digest.get())).collect();
    let labels: String =
        labels.iter().map(|(name, value)| format!("{}={},", escape(name), escape(value))).collect();
    let people = write_metadata(metadata);
    format!(
        "{sequence} {joined} {since} {heard} {ttl} {left} {draining} {marked} {knows_mark} {digests}. {labels}. \
         {people}"
    )
}

fn read_member(fields: &[&str]) -> Option<MemberRecord> {
    let &[sequence, joined, since, heard, ttl, left, draining, marked, knows_mark, ref rest @ ..] = fields
    else {
        return None;
    };
    let &[digests, labels, host, pid, note] = rest else { return None };
    let labels = labels.strip_suffix('.')?.split_terminator(',').map(|label| {
        let (name, value) = label.split_once('=')?;
        Some((unescape(name)?, unescape(value)?))
    });
    let digests =
        digests.strip_suffix('.')?.split_terminator(',').map(|digest| digest.parse().ok().map(Digest::new));
    Some(MemberRecord {
        sequence: sequence.parse().ok()?,
        joined: Timestamp::from_nanos(joined.parse().ok()?),
        since: Instant::from_nanos(since.parse().ok()?),
        heard: Instant::from_nanos(heard.parse().ok()?),
        ttl: Duration::from_nanos(ttl.parse().ok()?),
        left: left.parse().ok()?,
        draining: draining.parse().ok()?,
        marked: marked.parse().ok()?,
        knows_mark: knows_mark.parse().ok()?,
        digests: digests.collect::<Option<_>>()?,
        labels: Labels::new(labels.collect::<Option<Vec<_>>>()?).ok()?,
        metadata: read_metadata(host, pid, note)?,
    })
}

fn read_tick(n: &str, at: &str) -> Option<Tick> {
    Some(Tick { n: n.parse().ok()?, at: Timestamp::from_nanos(at.parse().ok()?) })
}

fn write_metadata(metadata: &Metadata) -> String {
    let host = metadata.host.as_deref().map_or("-".to_owned(), escape);
    let pid = metadata.pid.map_or("-".to_owned(), |pid| pid.to_string());
    let note = metadata.text.as_deref().map_or("-".to_owned(), escape);
    format!("{host} {pid} {note}")
}

fn read_metadata(host: &str, pid: &str, note: &str) -> Option<Metadata> {
    let optional = |field: &str| match field {
        "-" => Some(None),
        text => unescape(text).map(|text| Some(text.into())),
    };
    let mut metadata = Metadata::new();
    metadata.host = optional(host)?;
    metadata.pid = if pid == "-" { None } else { Some(pid.parse().ok()?) };
    metadata.text = optional(note)?;
    Some(metadata)
}

impl Record {
    fn holder(&self, now: u64) -> Holder {
        let mut holder = Holder::new(&self.owner);
        holder.token = Some(Token::new(self.token));
        holder.remaining = Some(Duration::from_micros(self.ends.saturating_sub(now)));
        holder.ttl = Some(Duration::from_micros(self.ttl));
        holder.since = UNIX_EPOCH.checked_add(Duration::from_micros(self.since));
        holder.metadata = self.metadata.clone();
        holder
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A text as its bytes in hexadecimal, after an `x` so that it is never empty.
fn escape(text: &str) -> String {
    text.bytes().fold("x".to_owned(), |escaped, byte| escaped + &format!("{byte:02x}"))
}

fn unescape(escaped: &str) -> Option<String> {
    let digits = escaped.strip_prefix('x')?.as_bytes();
    let bytes = digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8(bytes.collect::<Option<_>>()?).ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use tenure_store::core::{Acquisition, Identity, Incarnation};

    let store = FileStore { directory: std::env::temp_dir() };
    let process = u128::from(std::process::id());
    let request = Acquire {
        name: LeaseName::new("own-store")?,
        owner: Identity::new("example", Incarnation::new(process))?.owner(Acquisition(0)),
        ttl: Duration::from_secs(10),
        floor: Token::ZERO,
        wait: false,
        metadata: Metadata::new(),
        timeout: Duration::from_secs(1),
    };
    // Start it twice within ten seconds.
    match futures::executor::block_on(store.acquire(request))? {
        Acquired::Granted(token) => println!("granted for ten seconds, with token {token}"),
        Acquired::Held(holder) => println!("held by {}, for {:?} more", holder.owner, holder.remaining),
    }
    Ok(())
}
