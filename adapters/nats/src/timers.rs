//! Timers and claims of their ticks: a record for each timer.
//!
//! What becomes of a record is decided here, by [`TimerRecord::apply`]: it is read, then the server's time, and it is
//! written on the condition that it is what it was. The token of a grant is the number of the write.

use std::time::Duration;

use tenure_core::{TimerName, Token};
use tenure_json::timer::{self, Loaded};
use tenure_store::{
    StoreError, TimerAct, TimerAnswer, TimerEntry, TimerRecord, TimerRequest, check_claim_floor, clock,
};

use crate::client::Client;
use crate::error::unreadable;
use crate::leases::HIGHEST_FLOOR;
use crate::link::{Wrote, again};
use crate::names::Kind;

/// Timers and the runs of jobs are kept so long after they were last of interest: longer than a year, so that what
/// happens once a year is not forgotten in between.
pub(crate) const KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

/// A record that was written longer ago gets the whole time again when it is read. So reading is hardly ever writing.
const KEEP_AGAIN_AFTER: Duration = Duration::from_secs(24 * 3600);

/// What to do about a record that can't be read.
const ADVICE: &str = "until then its ticks can't be told; an operator can forget it";

impl Client {
    /// Carries out an operation on a timer.
    pub(crate) async fn carry_out(&self, request: &TimerRequest) -> Result<TimerAnswer, StoreError> {
        self.limits.check_timer(request)?;
        check_claim_floor(request, HIGHEST_FLOOR)?;
        let until = clock::now() + request.timeout;
        let subject = self.link.names.timer(&request.name);
        loop {
            let found = self.link.get(&subject, until).await?;
            let last = found.as_ref().map_or(0, |stored| stored.sequence);
            let stored = found.filter(|stored| !stored.gone);
            if request.act == TimerAct::Forget {
                // Also one that can't be read: it is what is left to do with it.
                if stored.is_none() {
                    return Ok(TimerAnswer::NotYours);
                }
                match self.link.purge(&subject, last, until).await? {
                    Wrote::Written(_) => return Ok(TimerAnswer::Removed),
                    Wrote::Changed => {
                        again(until).await?;
                        continue;
                    }
                }
            }
            let time = self.link.time(until).await?;
            let loaded = stored
                .as_ref()
                .map(|stored| timer::read(&stored.data, Some(Token::new(last)), time.now))
                .transpose();
            let loaded = loaded.map_err(|problem| unreadable(&problem, &subject, ADVICE))?;
            let (before, unread) = match loaded {
                Some(Loaded { record, unreadable }) => (Some(record), unreadable),
                None => (None, Vec::new()),
            };
            let mut record = before.clone();
            let given = |_| Ok::<_, StoreError>(Token::ZERO);
            let answer = TimerRecord::apply(&mut record, &request.act, time, given)?;
            let is_old =
                stored.is_some_and(|stored| time.wall.saturating_since(stored.time) > KEEP_AGAIN_AFTER);
            let is_read = matches!(request.act, TimerAct::Read { .. });
            let Some(record) = record.filter(|record| before.as_ref() != Some(record) || (is_read && is_old))
            else {
                return Ok(answer);
            };
            let data = timer::write(&record, &unread, None).into_bytes();
            match (self.link.write(&subject, data, last, KEPT, until).await?, answer) {
                (Wrote::Written(sequence), TimerAnswer::Granted(Token::ZERO)) => {
                    return Ok(TimerAnswer::Granted(Token::new(sequence)));
                }
                (Wrote::Written(_), answer) => return Ok(answer),
                (Wrote::Changed, _) => again(until).await?,
            }
        }
    }

    /// At most `most` timers after `after`, in the order of their names' bytes.
    pub(crate) async fn list_timers(
        &self,
        after: Option<TimerName>,
        most: usize,
    ) -> Result<Vec<TimerEntry>, StoreError> {
        let (time, found) =
            self.page(Kind::Timer, after.as_ref(), most, |name| TimerName::new(name).ok()).await?;
        let entry = |(name, stored): (TimerName, crate::link::Stored)| {
            match timer::read(&stored.data, Some(Token::new(stored.sequence)), time.now) {
                Ok(loaded) => TimerEntry::new(name, loaded.record, time),
                // The others are to be seen all the same.
                Err(problem) => {
                    let problem = unreadable(&problem, &stored.subject, ADVICE).message;
                    TimerEntry::unreadable(name, time, problem)
                }
            }
        };
        Ok(found.into_iter().map(entry).collect())
    }
}
