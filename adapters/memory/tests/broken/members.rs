//! What is wrong with members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use tenure_store::core::{Identity, Incarnation, Labels, LeaseName, Member, Presence, Timestamp};
use tenure_store::{
    DrainMark, Eviction, Heartbeat, Leave, Limits, MemberEntry, Metadata, SimpleStore, Store, StoreError,
};

use super::{Broken, Fault};

/// What faults of members need to remember.
#[derive(Debug, Default)]
pub(super) struct MemberMemory {
    /// The highest sequence number that was given on.
    sequences: BTreeMap<Identity, u64>,
    /// Those that have left, and would be told as if they had not.
    left: BTreeSet<Identity>,
    /// The highest sequence number that was asked with.
    asked: BTreeMap<Identity, u64>,
    first_version: Option<u64>,
    /// How much lower the versions are that are told.
    unraised: u64,
    /// The greatest age that was told.
    ages: BTreeMap<Identity, Duration>,
}

impl Broken {
    fn member_memory(&self) -> MutexGuard<'_, MemberMemory> {
        self.memory.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept_identity(&self, identity: Identity) -> Identity {
        let name = match self.fault {
            Fault::CutsNames => Some(identity.instance().chars().take(50).collect()),
            _ => self.other_text(identity.instance()).filter(|text| !text.is_empty()),
        };
        let incarnation = match self.fault {
            Fault::IgnoresTheIncarnation => Incarnation::new(0),
            _ => identity.incarnation(),
        };
        let name = name.as_deref().unwrap_or(identity.instance());
        Identity::new(name, incarnation).unwrap_or_else(|_| identity.clone())
    }

    pub(super) async fn heartbeat(&self, mut beat: Heartbeat) -> Result<Presence, StoreError> {
        let Limits { min_ttl, max_ttl, .. } = Store::limits(self);
        let asked = beat.clone();
        beat.identity = self.kept_identity(beat.identity);
        beat.ttl = self.ttl(beat.ttl);
        let last = self.member_memory().asked.get(&beat.identity).copied();
        let later = last.is_none_or(|last| beat.sequence > last);
        match self.fault {
            Fault::NeverExpires => beat.ttl = max_ttl,
            Fault::ExpiresEarly => beat.ttl = (beat.ttl * 9 / 10).max(min_ttl),
            Fault::RenewsForHalf if last.is_some() => beat.ttl /= 2,
            // An answer as to one that was repeated.
            Fault::RenewsWithoutExtending if last.is_some() => beat.sequence = 0,
            Fault::ForgetsWhatJoinersSay => beat.joined = None,
            Fault::TakesLateHeartbeats => beat.sequence = self.next_sequence(&beat.identity),
            Fault::ExtendsByLateHeartbeats => {
                let listed = SimpleStore::members(&self.inner, None, usize::MAX).await?;
                let before = listed.into_iter().find(|entry| entry.member.identity == beat.identity);
                beat.sequence = self.next_sequence(&beat.identity);
                if let (Some(before), false) = (before, later) {
                    (beat.digests, beat.labels) = (before.member.digests, before.member.labels);
                    (beat.metadata, beat.draining) = (before.metadata, before.member.draining);
                }
            }
            Fault::ClearsMarks => {
                let (instance, incarnation) = (beat.identity.instance().into(), beat.identity.incarnation());
                let mark = DrainMark { instance, incarnation: Some(incarnation), drain: false };
                SimpleStore::mark(&self.inner, mark).await?;
            }
            Fault::TellsTheViewAlways => beat.known = None,
            Fault::LosesLabels => beat.labels = Labels::default(),
            Fault::LosesMetadata => beat.metadata = Metadata::new(),
            Fault::CutsMetadata => {
                let cut =
                    |text: &str| text.chars().take(Metadata::MAX_TEXT_BYTES / 2).collect::<String>().into();
                beat.metadata.text = beat.metadata.text.as_deref().map(cut);
            }
            Fault::CutsDigests => {
                beat.digests = beat.digests.iter().copied().take(Heartbeat::MOST_DIGESTS / 2).collect();
            }
            Fault::ClampsSequences => beat.sequence = beat.sequence.min(Heartbeat::HIGHEST_SEQUENCE),
            _ => {}
        }
        let identity = beat.identity.clone();
        let presence = SimpleStore::heartbeat(&self.inner, beat).await?;
        let mut memory = self.member_memory();
        memory.left.remove(&identity);
        let highest = memory.asked.entry(identity).or_default();
        *highest = asked.sequence.max(*highest);
        drop(memory);
        Ok(self.seen_presence(&asked, presence))
    }

    fn next_sequence(&self, identity: &Identity) -> u64 {
        let mut memory = self.member_memory();
        let sequence = memory.sequences.entry(identity.clone()).or_default();
        *sequence += 1;
        *sequence
    }

    fn seen_presence(&self, asked: &Heartbeat, mut presence: Presence) -> Presence {
        let count = self.count();
        let mut memory = self.member_memory();
        let first = *memory.first_version.get_or_insert(presence.version);
        match self.fault {
            Fault::SeesNobodyElse => {
                if let Some(members) = &mut presence.members {
                    *members =
                        members.iter().filter(|member| member.identity == asked.identity).cloned().collect();
                }
            }
            Fault::JoinsAnew => presence.joined = Timestamp::from_nanos(i64::try_from(count).unwrap_or(0)),
            Fault::RaisesTheVersionAlways => presence.version += count,
            Fault::NeverRaisesTheVersion => presence.version = first,
            Fault::RaisesNoVersionForMarks => presence.version -= memory.unraised,
            Fault::TellsNoViewToWhoKnewOne if asked.known.is_some() => presence.members = None,
            _ => {}
        }
        let (left, fault) = (memory.left.clone(), self.fault);
        if let Some(members) = &mut presence.members {
            let seen = members.iter().filter(|member| !left.contains(&member.identity));
            let mut seen: Vec<Member> = seen.cloned().collect();
            for member in &mut seen {
                match fault {
                    Fault::TellsNoAges => member.age = Duration::ZERO,
                    Fault::CountsAgesFromTheFirstJoin => {
                        let oldest = memory.ages.entry(member.identity.clone()).or_default();
                        *oldest = member.age.max(*oldest);
                        member.age = *oldest;
                    }
                    _ => {}
                }
            }
            if fault == Fault::LosesTheLastMembers {
                seen.truncate(500);
            }
            *members = seen.into();
        }
        presence
    }

    pub(super) async fn leave(&self, mut leave: Leave) -> Result<(), StoreError> {
        leave.identity = self.kept_identity(leave.identity);
        leave.ttl = self.ttl(leave.ttl);
        match self.fault {
            Fault::ForgetsWhoLeft => {
                self.member_memory().left.insert(leave.identity);
                return Ok(());
            }
            Fault::LeavesNobodyUnseen if !self.member_memory().asked.contains_key(&leave.identity) => {
                return Ok(());
            }
            Fault::ForgetsAllOfThatName => {
                let lease = LeaseName::new(leave.identity.instance()).expect("it is a name");
                SimpleStore::evict(&self.inner, lease, Eviction::Delete).await?;
            }
            _ => {}
        }
        SimpleStore::leave(&self.inner, leave).await
    }

    pub(super) async fn seen_members(
        &self,
        after: Option<Identity>,
        most: usize,
    ) -> Result<Vec<MemberEntry>, StoreError> {
        let after = after.filter(|_| self.fault != Fault::IgnoresAfter);
        let most = if self.fault == Fault::IgnoresMost { usize::MAX } else { most };
        let mut members = SimpleStore::members(&self.inner, after, most).await?;
        let left = self.member_memory().left.clone();
        members.retain(|entry| !left.contains(&entry.member.identity));
        if self.fault == Fault::ListsMembersBackwards {
            members.reverse();
        }
        Ok(members)
    }

    pub(super) async fn mark_members(&self, mut mark: DrainMark) -> Result<Vec<Identity>, StoreError> {
        if let Some(text) = self.other_text(&mark.instance) {
            mark.instance = text.into();
        }
        match self.fault {
            Fault::MarksEveryProcess => mark.incarnation = None,
            Fault::MarksForeignProcesses => {
                let other = format!("{}a", mark.instance).into();
                SimpleStore::mark(&self.inner, DrainMark { instance: other, ..mark.clone() }).await?;
            }
            Fault::MarksNobody => {
                let listed = SimpleStore::members(&self.inner, None, usize::MAX).await?;
                let identities = listed.into_iter().map(|entry| entry.member.identity);
                return Ok(identities.filter(|identity| mark.concerns(identity)).collect());
            }
            Fault::RaisesNoVersionForMarks => {
                let marked = |entries: Vec<MemberEntry>| entries.iter().filter(|entry| entry.marked).count();
                let before = marked(SimpleStore::members(&self.inner, None, usize::MAX).await?);
                let concerned = SimpleStore::mark(&self.inner, mark).await?;
                if marked(SimpleStore::members(&self.inner, None, usize::MAX).await?) != before {
                    self.member_memory().unraised += 1;
                }
                return Ok(concerned);
            }
            _ => {}
        }
        SimpleStore::mark(&self.inner, mark).await
    }
}
