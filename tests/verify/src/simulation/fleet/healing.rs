//! What comes after the trouble: a core that is healthy, and must make progress.

use tenure_core::Token;

use super::super::MOST_MEMBERS;
use super::super::invariant::{OrderlyEnd, Recovery};
use super::super::member::{CLAIM, Candidacy, Worker};
use super::{Condition, Fault, Faults, Fleet, Happening, MS, Phase, What, drift};

impl Fleet {
    /// A core of the fleet, at least a majority, and the store are healthy from now on. The rest stays broken, each in
    /// its way: dead, paused for good, or cut off.
    ///
    /// A node whose requests reach the store while it never hears an answer is not among them: it would be granted the
    /// lease again and again.
    pub(in crate::simulation) fn heal(&mut self) {
        let members = self.world.members.len();
        let broken = self.tape.base().pick(members - members / 2);
        let first = self.tape.base().pick(members);
        self.faults = self.faults.minus(self.faults.minus(Faults::BENIGN));
        self.world.phase = Phase::Healed { since: self.world.now.max(self.hurts_until) };
        self.calm_the_network();
        self.mend_the_store();
        for nth in 0..members {
            let member = (first + nth) % members;
            if nth < broken { self.break_for_good(member) } else { self.mend(member) }
        }
        self.mend_shares();
        self.struck(None, What::Healed);
        for member in 0..members {
            if self.world.members[member].core {
                self.rearm(member);
            }
        }
    }

    /// What is under way arrives soon; what was still to go wrong, or to be mended, does not happen.
    fn calm_the_network(&mut self) {
        for ((at, _), what) in std::mem::take(&mut self.agenda) {
            match what {
                Happening::Request { .. }
                | Happening::Answer { .. }
                | Happening::Hint { .. }
                | Happening::TimerRequest { .. }
                | Happening::MemberRequest { .. }
                | Happening::Read { .. } => {
                    let soon = self.world.now + self.tape.of(Fault::Delay).below(20 * MS);
                    self.plan(at.min(soon), what);
                }
                Happening::Wake { .. }
                | Happening::Finish { .. }
                | Happening::Work { .. }
                | Happening::Write { .. }
                | Happening::Stand { .. }
                | Happening::Job { .. }
                | Happening::Expire { .. } => self.plan(at, what),
                Happening::Act { .. }
                | Happening::Strike { .. }
                | Happening::Unmark { .. }
                | Happening::GoOn { .. }
                | Happening::Configure { .. }
                | Happening::Flap { .. }
                | Happening::Loud { .. }
                | Happening::Resume { .. }
                | Happening::Start { .. }
                | Happening::Link { .. }
                | Happening::StoreUp => {}
            }
        }
    }

    fn mend_the_store(&mut self) {
        let (now, outlived) = (self.world.now, self.outlived());
        let rate = drift(&mut self.tape, self.faults, MOST_MEMBERS);
        let store = &mut self.world.store;
        let was_down = now < store.down_until;
        (store.down_until, store.slow_until, store.ignores_floor) = (0, 0, false);
        store.model.high_water = store.highest;
        store.clock.set_rate(now, rate);
        // Whoever mends it sees to it that tokens rise again.
        self.world.tokens_kept |= store.highest > Token::ZERO;
        if self.world.trusted_from == u64::MAX {
            self.world.trusted_from = now + outlived;
        }
        if was_down {
            self.store_up();
        }
    }

    fn break_for_good(&mut self, member: usize) {
        match self.tape.base().below(3) {
            0 => self.crash(member),
            1 => {
                if let Condition::Paused { until } = &mut self.world.members[member].condition {
                    *until = u64::MAX;
                }
                self.pause(member, u64::MAX);
            }
            _ => {
                let node = &mut self.world.members[member];
                (node.asks, node.hears) = (false, false);
                if let Condition::Paused { until } = node.condition {
                    self.plan(until, Happening::Resume { member });
                }
                self.struck(member, What::CutOff);
            }
        }
    }

    fn mend(&mut self, member: usize) {
        let (now, outlived) = (self.world.now, self.outlived());
        let rate = drift(&mut self.tape, self.faults, member);
        let node = &mut self.world.members[member];
        (node.asks, node.hears, node.core, node.part.silent) = (true, true, true, false);
        node.clock.set_rate(now, rate);
        if node.trusted_from == u64::MAX {
            node.trusted_from = now + outlived;
        }
        if let Condition::Paused { until } = &mut node.condition {
            *until = now;
            self.resume(member);
        }
        if self.world.members[member].shut {
            self.crash(member);
        }
        if self.world.members[member].condition == Condition::Down {
            self.start_anew(member);
        }
        let node = &self.world.members[member];
        let (life, stuck) =
            (node.life, node.candidacies.iter().filter(|c| c.work.is_some_and(|w| w.stuck.is_some())));
        for lease in stuck.map(|candidacy| candidacy.lease).collect::<Vec<_>>() {
            self.plan(now + 10 * MS, Happening::Finish { life, lease });
        }
        // Somebody stands for each name: a worker, if one is there that goes on.
        for name in 0..self.world.leases {
            let goes_on = |worker: &Worker| worker.name == name && !worker.draining;
            if !self.world.members[member].workers.iter().any(goes_on) {
                self.stand(member, name);
            }
        }
        self.take_part(member);
        self.start_missing(member);
        self.pump(member, None);
        self.resync(member);
    }

    /// Gives the core the time that it may take, and a TTL in which to come to rest.
    pub(in crate::simulation) fn recover(&mut self) {
        let Phase::Healed { since } = self.world.phase else { return };
        let bound = Recovery::bound(&self.world).max(self.world.shared_out_after());
        self.run_until(since + bound + self.world.timing.ttl().as_nanos() as u64);
    }

    /// Gives those that are left the time to take over what one of them had.
    pub(in crate::simulation) fn mourn(&mut self) {
        self.run_for((self.world.timing.ttl() * 2).as_nanos() as u64);
        if let Phase::Bereft { since, .. } = self.world.phase {
            self.run_until(since + self.world.shared_out_after());
        }
    }

    /// The core has recovered.
    pub(in crate::simulation) fn settled(&mut self) {
        self.world.phase = Phase::Settled;
        self.struck(None, What::Settled);
    }

    /// A holder of the core is gone for good, if there are others left.
    pub(in crate::simulation) fn bereave(&mut self) {
        let core = self.world.members.iter().filter(|member| member.core).count();
        let holds = |member: &usize| {
            let node = &self.world.members[*member];
            let holds = |candidacy: &Candidacy| candidacy.held.is_some() && candidacy.name != CLAIM;
            node.core && node.candidacies.iter().any(holds)
        };
        let holders: Vec<usize> = (0..self.world.members.len()).filter(holds).collect();
        if core < 2 || holders.is_empty() {
            return;
        }
        let victim = holders[self.tape.base().pick(holders.len())];
        let others = self.world.members.iter().enumerate().filter(|(other, _)| *other != victim);
        if !others.into_iter().any(|(_, node)| node.core && !node.node.is_draining()) {
            return;
        }
        self.world.phase = Phase::Bereft { since: self.world.now, victim };
        self.check();
        self.world.members[victim].core = false;
        self.break_for_good(victim);
    }

    /// Everything is given back, and nothing must be left.
    pub(in crate::simulation) fn end(&mut self) {
        self.world.phase = Phase::Ending;
        for member in 0..self.world.members.len() {
            if self.world.members[member].core {
                self.shut(member);
                self.pump(member, None);
            }
        }
        self.run_for(OrderlyEnd::bound(&self.world));
    }
}
