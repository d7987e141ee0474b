//! Stores that are wrong, to see the search find it.

use tenure_core::{Command, Instant, LeaseName, Reply, TimerName, Token};
use tenure_store::{StoreTime, TimerAct, TimerAnswer};

use super::config::Store;
use crate::store::{ModelStore, Record, Waiter, Woken};

impl Store {
    /// Executes a command as this store does.
    pub(super) fn execute(
        self,
        store: &mut ModelStore,
        now: Instant,
        from: &Waiter,
        name: &LeaseName,
        command: &Command,
    ) -> (Option<Reply>, Vec<Woken>) {
        let before = store.holder(now, name).cloned();
        match (self, command, before) {
            (Self::RaisesOnRepeat, Command::Acquire { n, .. }, Some(record))
                if record.owner == from.1.owner(*n) =>
            {
                let raised = Token::new(store.high_water.get() + 1);
                store.high_water = raised;
                let (_, woken) = store.execute(now, from, name, command);
                if let Some(record) = store.records.get_mut(name) {
                    record.token = raised;
                }
                (Some(Reply::Granted { token: raised }), woken)
            }
            (Self::RenewsBlindly, Command::Renew { n, token, ttl, .. }, _) => {
                let record = Record { owner: from.1.owner(*n), token: *token, expires: now + *ttl };
                store.records.insert(name.clone(), record);
                (Some(Reply::Renewed), Vec::new())
            }
            (Self::ReleasesBlindly, Command::Release { .. }, Some(_)) => {
                store.records.remove(name);
                (Some(Reply::Released { others_chosen: false }), Vec::new())
            }
            _ => store.execute(now, from, name, command),
        }
    }

    /// Carries out an operation on a timer as this store does.
    pub(super) fn execute_timer(
        self,
        store: &mut ModelStore,
        time: StoreTime,
        name: &TimerName,
        act: &TimerAct,
    ) -> TimerAnswer {
        let record = store.timers.get_mut(name);
        match (self, act, record) {
            (Self::RenewsAnyClaim, TimerAct::Renew { tick, ttl, .. }, Some(record)) => {
                if let Some(claim) = record.claims.iter_mut().find(|claim| claim.tick == *tick) {
                    claim.ends = time.now + *ttl;
                }
                TimerAnswer::Renewed
            }
            (Self::FinishesAnyClaim, TimerAct::Finish { tick, .. }, Some(record)) => {
                record.claims.retain(|claim| claim.tick != *tick);
                TimerAnswer::Removed
            }
            (Self::ClaimsBelowLast, TimerAct::Claim(claim), Some(record)) => {
                let claimed = record.claimed;
                record.claimed = claimed.min(claim.tick.saturating_sub(1));
                let answer = store.execute_timer(time, name, act);
                if let Some(record) = store.timers.get_mut(name) {
                    record.claimed = record.claimed.max(claimed);
                }
                answer
            }
            _ => store.execute_timer(time, name, act),
        }
    }
}
