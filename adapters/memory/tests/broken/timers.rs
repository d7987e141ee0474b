//! What is wrong with timers and claims.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use tenure_store::core::{
    AnySchedule, ClaimEnd, JobName, LeaseName, Overlap, Owner, Tick, TimerChange, TimerName, Timestamp, Token,
};
use tenure_store::{
    Claim, Eviction, Limits, Metadata, SimpleStore, Store, StoreError, TimerAct, TimerAnswer, TimerRequest,
};

use super::{Broken, Fault};

impl Broken {
    pub(super) async fn timer(&self, mut request: TimerRequest) -> Result<TimerAnswer, StoreError> {
        if let Some(text) = self.other_text(request.name.as_str()) {
            request.name = TimerName::new(text).unwrap_or(request.name);
        }
        let name = request.name.clone();
        let view = match SimpleStore::timers(&self.inner, None, usize::MAX).await {
            Ok(timers) => timers.into_iter().find(|timer| timer.name == name).map(|timer| timer.record),
            Err(error) => return Err(error),
        };
        let asked = request.act.clone();
        match &mut request.act {
            TimerAct::Read { schedule, last } => match self.fault {
                Fault::MakesTimersAnew => {
                    let forget = TimerRequest { act: TimerAct::Forget, ..request.clone() };
                    SimpleStore::timer(&self.inner, forget).await?;
                }
                Fault::CutsSchedules => {
                    *schedule = schedule.chars().take(AnySchedule::MAX_BYTES / 4).collect::<String>().into();
                }
                Fault::ClampsTicks => *last = last.map(|last| last.min(TimerRequest::HIGHEST_TICK)),
                Fault::IgnoresTheLastTick => *last = None,
                Fault::BeginsAtZero if view.is_none() => *last = None,
                _ => {}
            },
            TimerAct::Change { revision, change } => {
                let current = view.as_ref().map_or(*revision, |record| record.revision);
                match (self.fault, change) {
                    (Fault::ChangesWhateverTheRevision, _) => *revision = current,
                    (Fault::RebasesTwice, TimerChange::Rebase { .. }) => *revision = current,
                    (Fault::StagesAtOnce, TimerChange::Stage { at, .. }) => {
                        at.at = view.map_or(at.at, |record| record.base.at);
                    }
                    (Fault::StagesForLater, TimerChange::Stage { at, .. }) => at.at = Timestamp::MAX,
                    (Fault::LosesStaged, TimerChange::Stage { .. })
                    | (Fault::IgnoresRebases, TimerChange::Rebase { .. }) => *revision = u64::MAX,
                    (Fault::MakesWhatIsChanged, _) if view.is_none() => {
                        request.act = TimerAct::Read { schedule: "every 7s".into(), last: None };
                    }
                    _ => {}
                }
            }
            TimerAct::Claim(claim) => {
                let Limits { min_ttl, max_ttl, .. } = Store::limits(self);
                claim.ttl = self.ttl(claim.ttl);
                match self.fault {
                    Fault::RepeatsForEver => claim.attempts = u32::MAX,
                    Fault::NeverRepeats => claim.attempts = 1,
                    Fault::AllowsAllOverlaps => claim.overlap = Overlap::Allow,
                    Fault::SkipsAllOverlaps => claim.overlap = Overlap::Skip,
                    Fault::QueuesAllOverlaps | Fault::RunsSkippedTicksLate => claim.overlap = Overlap::Queue,
                    Fault::NeverExpires => claim.ttl = max_ttl,
                    Fault::ExpiresEarly => claim.ttl = (claim.ttl * 9 / 10).max(min_ttl),
                    Fault::ClampsTicks => claim.tick = claim.tick.min(TimerRequest::HIGHEST_TICK),
                    Fault::CutsMetadata => {
                        let cut = |text: &str| {
                            text.chars().take(Metadata::MAX_TEXT_BYTES / 2).collect::<String>().into()
                        };
                        claim.metadata.text = claim.metadata.text.as_deref().map(cut);
                    }
                    _ => {}
                }
            }
            TimerAct::Renew { tick, owner, token, ttl } => {
                let claim =
                    view.as_ref().and_then(|record| record.claims.iter().find(|one| one.tick == *tick));
                let is_right = claim.is_some_and(|one| one.owner == owner.to_string() && one.token == *token);
                *ttl = self.ttl(*ttl);
                *token = self.kept(*token);
                match self.fault {
                    Fault::RenewsForAnyOwner => *owner = self.claimant(&name, *tick).unwrap_or(owner.clone()),
                    Fault::RenewsForAnyToken => *token = claim.map_or(*token, |claim| claim.token),
                    Fault::RenewsForHalf => *ttl /= 2,
                    Fault::RenewsWithoutExtending if is_right => return Ok(TimerAnswer::Renewed),
                    _ => {}
                }
            }
            TimerAct::Finish { tick, owner, token, end } => {
                *token = token.map(|token| self.kept(token));
                let other = self.claimant(&name, *tick);
                match self.fault {
                    Fault::ReleasesForAnyOwner => {
                        (*owner, *token) = (other.unwrap_or(owner.clone()), None);
                    }
                    Fault::ReleasesUnseenForAnyOwner if token.is_none() => {
                        *owner = other.unwrap_or(owner.clone());
                    }
                    Fault::ReleasesForAnyToken => *token = None,
                    Fault::CountsWhatNeverBegan if *end == ClaimEnd::NotStarted => {
                        *end = ClaimEnd::Interrupted
                    }
                    Fault::CountsNothing => *end = ClaimEnd::NotStarted,
                    Fault::FreesEarlierAttempts if *end == ClaimEnd::NotStarted => {
                        let again = |one: &Claim| one.tick == *tick && one.begun > 1;
                        if view.is_some_and(|record| record.claims.iter().any(again)) {
                            self.unbegun().insert((name.clone(), *tick));
                        }
                    }
                    _ => {}
                }
            }
            TimerAct::Forget => match self.fault {
                Fault::ForgetsNoTimers => return Ok(TimerAnswer::Removed),
                Fault::ForgetsAllOfThatName => {
                    let job = JobName::new(name.as_str()).expect("it is a name");
                    SimpleStore::forget_job(&self.inner, job).await?;
                }
                _ => {}
            },
        }
        let answer = SimpleStore::timer(&self.inner, request).await?;
        self.seen_answer(&name, &asked, answer).await
    }

    fn claimant(&self, name: &TimerName, tick: u64) -> Option<Owner> {
        let claimants = self.memory.claimants.lock().unwrap_or_else(PoisonError::into_inner);
        claimants.get(&(name.clone(), tick)).cloned()
    }

    fn unbegun(&self) -> MutexGuard<'_, BTreeSet<(TimerName, u64)>> {
        self.memory.unbegun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer as the faulty store gives it.
    async fn seen_answer(
        &self,
        name: &TimerName,
        asked: &TimerAct,
        answer: TimerAnswer,
    ) -> Result<TimerAnswer, StoreError> {
        Ok(match (asked, answer) {
            (TimerAct::Claim(claim), TimerAnswer::Granted(token)) => {
                let owner = claim.owner.clone();
                self.memory
                    .claimants
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert((name.clone(), claim.tick), owner);
                self.memory.last_token.fetch_max(token.get(), Ordering::Relaxed);
                TimerAnswer::Granted(match self.fault {
                    Fault::ClaimsWithANewToken => Token::new(token.get() + self.count()),
                    Fault::RemembersTokens => Token::new(1),
                    _ => self.told(token),
                })
            }
            (TimerAct::Claim(claim), TimerAnswer::Taken) => match self.fault {
                Fault::GrantsWhatIsTaken => TimerAnswer::Granted(Token::new(1)),
                Fault::GrantsAgainToTheSameOwner
                    if self.claimant(name, claim.tick).as_ref() == Some(&claim.owner) =>
                {
                    TimerAnswer::Granted(Token::new(1))
                }
                Fault::FreesEarlierAttempts if self.unbegun().contains(&(name.clone(), claim.tick)) => {
                    TimerAnswer::Granted(Token::new(1))
                }
                Fault::HoldsWhatIsTaken => TimerAnswer::Held { token: Token::new(1), remaining: claim.ttl },
                _ => TimerAnswer::Taken,
            },
            (TimerAct::Claim(claim), TimerAnswer::Held { .. })
                if self.fault == Fault::RunsSkippedTicksLate && claim.overlap == Overlap::Skip =>
            {
                TimerAnswer::Overlaps
            }
            (TimerAct::Claim(_), TimerAnswer::Overlaps) if self.fault == Fault::AllowsMoreRuns => {
                TimerAnswer::Granted(Token::new(1))
            }
            (TimerAct::Finish { .. }, TimerAnswer::NotYours) if self.fault == Fault::ReleasesTwice => {
                TimerAnswer::Removed
            }
            (asked, TimerAnswer::Read { mut view, mut at }) => {
                match (self.fault, asked) {
                    (Fault::TellsTheTimeOfTheBase, _) => at = view.base.at,
                    (Fault::LowersTheLastTick, TimerAct::Read { last: Some(last), .. }) => view.last = *last,
                    (
                        Fault::NumbersFromTheAsker,
                        TimerAct::Change { change: TimerChange::Rebase { last }, .. },
                    ) => view.base = Tick { n: *last, ..view.base },
                    _ => {}
                }
                TimerAnswer::Read { view, at }
            }
            (TimerAct::Forget, answer) if self.fault == Fault::ForgetsAllOfThatName => {
                let lease = LeaseName::new(name.as_str()).expect("it is a name");
                SimpleStore::evict(&self.inner, lease, Eviction::Delete).await?;
                answer
            }
            (_, answer) => answer,
        })
    }
}
