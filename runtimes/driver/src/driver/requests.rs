//! What the handles ask for.

use std::task::{Context, Poll};

use futures::stream::{FusedStream, StreamExt};
use tenure_core::{Instant, ReleaseOutcome, WaitLimit};

use super::entries::{Entry, Times};
use super::{Driver, SHARE, Stage, UNHELD_LIMIT};
use crate::acquire::AcquireError;
use crate::fleet::DrainReason;
use crate::request::{Look, Request};
use crate::runtime::Runtime;
use crate::subject::Subject;

impl<R: Runtime> Driver<R> {
    pub(super) fn take_requests(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        for taken in 0..SHARE {
            if self.inbox.is_terminated() {
                return taken > 0;
            }
            match self.inbox.poll_next_unpin(cx) {
                Poll::Ready(Some(request)) => self.request(now, request),
                // All handles are gone: what is left is to give everything back.
                Poll::Ready(None) => self.drain(now),
                Poll::Pending => return taken > 0,
            }
        }
        true
    }

    fn request(&mut self, now: Instant, request: Request) {
        match request {
            Request::Acquire { ticket, name, options, candidate, grant } => {
                let times = Times::of(&options);
                let unheard = candidate.is_none() && options.wait == WaitLimit::Forever;
                match self.node.acquire(now, name.clone(), options) {
                    Ok(key) => {
                        let entry = Entry {
                            subject: Subject::Lease(name),
                            ticket: Some(ticket),
                            times,
                            candidate,
                            unheard,
                            grant: Some(grant),
                            host: None,
                            hold: None,
                            since: now,
                            granted: None,
                            renewing: None,
                            recorded: false,
                            outcome: None,
                        };
                        self.entries.insert(key, entry);
                    }
                    Err(_shutting_down) => {
                        let _nobody_waits = grant.send(Err(AcquireError::ShuttingDown { lease: name }));
                    }
                }
            }
            Request::Release { ticket, outcome } => match self.entries.key(ticket) {
                Some(key) => {
                    self.unhold(now, key);
                    if let Some(entry) = self.entries.of(key) {
                        // Nobody waits for a grant any more.
                        entry.grant = None;
                        entry.candidate = None;
                        entry.outcome = outcome;
                    }
                    // The key is the node's own.
                    let _never_misuse = self.node.release(now, key);
                }
                // It had ended before.
                None => drop(outcome.map(|outcome| outcome.send(ReleaseOutcome::NotHeld))),
            },
            Request::Worker(new) => self.start_worker(now, *new),
            Request::EndWorker { ticket, hard } => self.end_worker(now, ticket, hard),
            Request::Timer(new) => self.start_timer(now, *new),
            Request::StopTimer(ticket) => self.stop_timer(now, ticket),
            Request::Coordinator(new) => self.start_coordinator(now, *new),
            Request::ChangeWorkloads { ticket, name, add, changed } => {
                self.change_workloads(now, ticket, name, add, changed);
            }
            Request::EndCoordinator { ticket, hard } => self.end_coordinator(now, ticket, hard),
            Request::Join(done) => self.join(now, Some(done)),
            Request::Drain { hard, done } => self.drain_all(now, hard, Some(done)),
            Request::Resume => self.node.resume(now),
            Request::Periodic(new) => self.start_periodic(now, *new),
            Request::EndPeriodic { ticket, hard } => self.end_periodic(now, ticket, hard),
            Request::BeginRun(new) => self.records.begin_own(now, *new),
            Request::NoteRun { ticket, text } => self.records.note(now, ticket, text),
            Request::EndRun { ticket, outcome, text, done } => {
                self.records.end_own(now, ticket, outcome, text, done);
            }
            Request::Look(look) => self.look(now, look),
            Request::Shutdown { budget, done } => {
                self.leaving.push((now + budget, done));
                self.drain(now);
            }
        }
    }

    fn look(&mut self, now: Instant, look: Look) {
        let store = self.carrier.store().clone();
        match look {
            Look::Inspect(name, answer) => self.carrier.look(now, store.inspecting(name), answer),
            Look::List(after, most, answer) => self.carrier.look(now, store.listing(after, most), answer),
            Look::Evict(name, how, answer) => self.carrier.look(now, store.evicting(name, how), answer),
            Look::Timers(after, most, answer) => self.carrier.look(now, store.timing(after, most), answer),
            Look::ForgetTimer(name, answer) => self.carrier.forget_timer(now, name, answer),
            Look::Jobs(after, most, answer) => self.carrier.look(now, store.recording(after, most), answer),
            Look::Runs(job, answer) => self.carrier.look(now, store.running(job), answer),
            Look::ForgetJob(job, answer) => self.carrier.look(now, store.forgetting(job), answer),
            Look::Members(after, most, answer) => {
                self.carrier.look(now, store.membering(after, most), answer)
            }
            Look::Mark(mark, answer) => self.carrier.look(now, store.marking(mark), answer),
        }
    }

    fn drain(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Running) {
            self.stage = Stage::Draining(now + UNHELD_LIMIT);
            self.node.shutdown(now);
            self.draining(now, DrainReason::Shutdown);
        }
    }
}
