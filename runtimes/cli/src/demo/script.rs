//! What happens to the fleet. Each step waits for its effect, never for a time to pass.

use rustix::process::Signal;
use tenure::AcquireError;

use crate::demo::evidence::Grant;
use crate::demo::fleet::Role;
use crate::demo::notes::{HELD_BACK, LATE_EXECUTED, LATE_REFUSED, WAITS, noted};
use crate::demo::report::{Event, HandOver, What};
use crate::demo::trouble::{Fate, Weather};
use crate::demo::{BACKUP, Demo, LEASES, LOOK_AGAIN, MEMBERS, SHARED, failed, nanos, outcome, picture};
use crate::exit;
use crate::failure::Failure;
use crate::witness::now;

/// The fleet is steady once so many units of work were done under each grant.
const STEADY: usize = 25;
/// What a member says who works without a lease.
const ROGUE: char = 'X';

impl Demo {
    /// Plays the whole script. With a rogue, it ends when that one is found out.
    pub(crate) async fn play(&mut self, rogue: bool) -> Result<(), Failure> {
        self.start().await?;
        self.steady().await?;
        if rogue {
            return self.let_rogue_in().await;
        }
        self.kill().await?;
        self.steady().await?;
        self.freeze().await?;
        self.steady().await?;
        self.drain(BACKUP).await?;
        self.steady().await?;
        self.drain(SHARED[0]).await?;
        self.steady().await?;
        self.cut_off().await?;
        self.steady().await?;
        self.worsen_network().await?;
        self.steady().await?;
        self.say("the end: all are drained");
        Ok(())
    }

    /// Starts all members, those first that are to be the first holders.
    async fn start(&mut self) -> Result<(), Failure> {
        self.screen.open(&MEMBERS, self.ttl);
        for firsts in [['A', 'D'].as_slice(), &['B', 'C', 'E']] {
            for (name, role) in MEMBERS {
                if firsts.contains(&name) {
                    self.fleet.start(name, role).map_err(|error| failed("start a member", &error))?;
                }
            }
            for lease in LEASES {
                self.working(lease).await?;
            }
        }
        Ok(())
    }

    /// Waits until every lease is worked under, and every other member waits for it.
    async fn steady(&mut self) -> Result<(), Failure> {
        self.until("all leases to be worked under, and all others to wait", |demo| {
            let at_work = LEASES.iter().all(|lease| {
                let evidence = demo.evidence(lease);
                evidence.at_work().is_some_and(|grant| {
                    demo.fleet.has(grant) && evidence.units(grant.token).count() >= STEADY
                })
            });
            (at_work && MEMBERS.iter().all(|(name, role)| demo.works_or_waits(*name, *role))).then_some(())
        })
        .await
    }

    fn works_or_waits(&self, name: char, role: Role) -> bool {
        let log = self.fleet.log(name);
        role.leases().iter().all(|lease| {
            let waits = match role {
                Role::Run | Role::Rogue => log.contains(&format!("{lease:?} is held by")),
                Role::Library => noted(&log, WAITS).any(|noted| noted == *lease),
            };
            waits || self.evidence(lease).at_work().is_some_and(|grant| grant.member == name)
        })
    }

    /// Waits until somebody works under a lease.
    async fn working(&mut self, lease: &str) -> Result<Grant, Failure> {
        self.until("somebody to work", |demo| demo.evidence(lease).at_work()).await
    }

    /// SIGKILL: no time to give anything back.
    async fn kill(&mut self) -> Result<(), Failure> {
        let before = self.working(BACKUP).await?;
        let name = before.member;
        self.say(&format!("kill -9 {name}: its command dies with it"));
        self.fleet.expect_end(name);
        let at = now();
        self.fleet.signal(name, Signal::KILL);
        let hand_over = self.passes_on(BACKUP, before, at).await?;
        self.until("the killed one to be gone", |demo| demo.fleet.status(name)).await?;
        self.start_again(name)?;
        self.events.push(Event::new(What::Kill, name, at, vec![hand_over]));
        Ok(())
    }

    /// SIGSTOP, for longer than the lease lasts, and SIGCONT.
    async fn freeze(&mut self) -> Result<(), Failure> {
        let before = self.working(BACKUP).await?;
        let name = before.member;
        self.say(&format!("kill -STOP {name}: it can't renew; its guardian has to stop the work in time"));
        self.fleet.expect_end(name);
        let at = self.stop(name).await?;
        let hand_over = self.passes_on(BACKUP, before, at).await?;
        let thaw = at + nanos(self.ttl) * 5 / 4;
        self.until("more than a TTL to pass", |_| (now() > thaw).then_some(())).await?;
        let thawed = now();
        self.fleet.signal(name, Signal::CONT);
        let status = self.until("the frozen one to notice", |demo| demo.fleet.status(name)).await?;
        let frozen = picture::short(std::time::Duration::from_nanos(thawed - at));
        self.say(&format!("kill -CONT {name} after {frozen}: it ends ({})", outcome(status)));
        if status.code() != Some(i32::from(exit::LOST)) {
            let message =
                format!("{name} was frozen for more than its TTL, and should have ended with code 76");
            return Err(Failure::new(exit::INTERNAL, message));
        }
        self.start_again(name)?;
        let mut event = Event::new(What::Freeze, name, at, vec![hand_over]);
        event.over = Some(thawed);
        self.events.push(event);
        Ok(())
    }

    /// Stops a member, but not inside of a transaction: there it would keep the whole store locked, so that nobody
    /// could take over before it goes on. That is safe, and not what is to be shown. Tells when it was.
    async fn stop(&mut self, name: char) -> Result<u64, Failure> {
        /// A transaction takes a few milliseconds in half a second.
        const MOST: usize = 50;
        for _ in 0..MOST {
            let at = now();
            self.fleet.signal(name, Signal::STOP);
            match self.store.try_acquire("probe").ttl(self.ttl).await {
                Ok(probe) => {
                    let _ = probe.release().await;
                    return Ok(at);
                }
                Err(AcquireError::Unreachable { .. } | AcquireError::TooLate { .. }) => {
                    self.fleet.signal(name, Signal::CONT);
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::new(exit::INTERNAL, format!("{name} was never found outside of a transaction")))
    }

    /// SIGTERM: work ends in order, and the leases are given back.
    async fn drain(&mut self, lease: &str) -> Result<(), Failure> {
        let name = self.working(lease).await?.member;
        let held = self.held_by(name);
        let leases: Vec<_> = held.iter().map(|(lease, _)| *lease).collect();
        self.say(&format!("kill -TERM {name}: it is drained, and gives back {}", leases.join(" and ")));
        self.fleet.expect_end(name);
        let at = now();
        self.fleet.signal(name, Signal::TERM);
        let hand_overs = self.pass_on(held, at).await?;
        self.until("the drained one to end", |demo| demo.fleet.status(name)).await?;
        self.start_again(name)?;
        self.events.push(Event::new(What::Drain, name, at, hand_overs));
        Ok(())
    }

    /// Nothing gets through between a member and the store, until others have its leases.
    async fn cut_off(&mut self) -> Result<(), Failure> {
        let name = self.working(SHARED[0]).await?.member;
        let held = self.held_by(name);
        self.say(&format!("{name} is cut off from the store (injected): it has to stop by its own clock"));
        let at = now();
        self.fleet.tell(name, Weather::Cut);
        let hand_overs = self.pass_on(held, at).await?;
        let over = now();
        self.fleet.tell(name, Weather::Clear);
        let [refused, executed] = self
            .until("what was held back to arrive", |demo| {
                let [sent, refused, executed] = demo.notes(name, [HELD_BACK, LATE_REFUSED, LATE_EXECUTED]);
                (sent > 0 && sent == refused + executed).then_some([refused, executed])
            })
            .await?;
        self.say(&format!(
            "{name} is reachable again; {} requests reach the store late: {refused} refused, {executed} done",
            refused + executed
        ));
        let mut event = Event::new(What::Cut, name, at, hand_overs);
        event.over = Some(over);
        event.counts = vec![(LATE_REFUSED, refused), (LATE_EXECUTED, executed)];
        self.events.push(event);
        Ok(())
    }

    /// Requests and replies are late and lost, as far as a lease has to stand it.
    async fn worsen_network(&mut self) -> Result<(), Failure> {
        let name = self.working(SHARED[0]).await?.member;
        let held = self.held_by(name);
        self.say(&format!("{name}'s network is bad (injected): requests and replies are late or lost"));
        let at = now();
        self.fleet.tell(name, Weather::Bad);
        let fates = [Fate::Slow, Fate::LateReply, Fate::LostReply, Fate::LostRequest].map(Fate::name);
        let counts = self
            .until("all kinds of trouble to happen", |demo| {
                let counts = demo.notes(name, fates);
                // A busy machine may add so much of its own that the lease is lost all the same.
                (counts.iter().all(|count| *count > 0) || !demo.are_kept(&held)).then_some(counts)
            })
            .await?;
        let over = now();
        self.fleet.tell(name, Weather::Clear);
        self.steady().await?;
        let kept = self.are_kept(&held);
        let [slow, late, lost_replies, lost_requests] = counts;
        self.say(&format!(
            "{} requests, {} in time: {name} {}",
            slow + late + lost_replies + lost_requests,
            slow,
            if kept { "has kept its leases" } else { "has lost a lease, as this machine is busy" }
        ));
        let leases = held.iter().map(|(lease, _)| *lease).collect();
        let mut event = Event::survived(What::BadNetwork, name, at, leases, kept);
        event.over = Some(over);
        event.counts = fates.into_iter().zip(counts).collect();
        self.events.push(event);
        Ok(())
    }

    /// For tests: one that works on what another holds.
    async fn let_rogue_in(&mut self) -> Result<(), Failure> {
        self.say(&format!("{ROGUE} works on {BACKUP} without a lease"));
        self.fleet.start(ROGUE, Role::Rogue).map_err(|error| failed("start a member", &error))?;
        self.until("it to be found out", |demo| (!demo.evidence(BACKUP).breaches().is_empty()).then_some(()))
            .await
    }

    /// The grants under which a member works.
    fn held_by(&self, name: char) -> Vec<(&'static str, Grant)> {
        let grants = self.evidence.iter().filter_map(|evidence| Some((evidence.lease, evidence.at_work()?)));
        grants.filter(|(_, grant)| grant.member == name).collect()
    }

    fn are_kept(&self, held: &[(&'static str, Grant)]) -> bool {
        held.iter().all(|(lease, grant)| {
            self.evidence(lease).at_work().is_some_and(|at_work| at_work.token == grant.token)
        })
    }

    /// How often each of these stands in a member's notes.
    fn notes<const N: usize>(&self, name: char, notes: [&str; N]) -> [usize; N] {
        let log = self.fleet.log(name);
        notes.map(|note| noted(&log, note).count())
    }

    async fn pass_on(&mut self, held: Vec<(&'static str, Grant)>, at: u64) -> Result<Vec<HandOver>, Failure> {
        let mut hand_overs = Vec::new();
        for (lease, before) in held {
            hand_overs.push(self.passes_on(lease, before, at).await?);
        }
        Ok(hand_overs)
    }

    /// Waits until the next one works under a lease.
    async fn passes_on(&mut self, lease: &'static str, before: Grant, at: u64) -> Result<HandOver, Failure> {
        let after = self
            .until("another one to take over", |demo| {
                let grants = &demo.evidence(lease).grants;
                grants.iter().skip_while(|grant| grant.began != before.began).nth(1).copied()
            })
            .await?;
        let worked = self.evidence(lease).units(before.token).map(|unit| unit.end).max();
        Ok(HandOver { lease, before, after, worked: worked.unwrap_or(before.began), at })
    }
}
