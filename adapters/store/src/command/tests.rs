use std::time::Duration;

use tenure_core::{
    Identity, Incarnation, Instant, LeaseConfig, LeaseName, LeaseOptions, Output, SplitMix, StoreClock, Token,
};

use super::*;
use crate::{Acquired, Renewed, StoreError};

#[test]
fn an_operation_is_answered_only_by_what_belongs_to_it() {
    use TimerAnswer::{Gone, Granted, NotYours, Overlaps, Removed, Renewed, Taken};
    let held = TimerAnswer::Held { token: Token::new(1), remaining: Duration::ZERO };
    let answers = [Granted(Token::new(1)), held, Taken, Overlaps, Renewed, Removed, NotYours, Gone];
    let fitting = |kind: OperationKind| {
        let fits = |answer: &&TimerAnswer| kind.fits(&Answer::Timer(TimerAnswer::clone(answer)));
        answers.iter().filter(fits).cloned().collect::<Vec<_>>()
    };
    assert_eq!(fitting(OperationKind::ClaimTick), answers[..4]);
    assert_eq!(fitting(OperationKind::RenewClaim), [Renewed, NotYours]);
    assert_eq!(fitting(OperationKind::FinishTick), [Removed, NotYours]);
    assert_eq!(fitting(OperationKind::ForgetTimer), [Removed, NotYours]);
    assert_eq!(fitting(OperationKind::ReadTimer), []);
    assert_eq!(fitting(OperationKind::ChangeTimer), [Gone]);
    for kind in [OperationKind::Acquire, OperationKind::Renew, OperationKind::Release] {
        assert_eq!(fitting(kind), []);
    }
}

#[test]
fn an_answer_to_another_operation_says_nothing_about_this_one() {
    let timing = LeaseConfig::new(Duration::from_secs(15)).resolve(&StoreClock::default()).unwrap();
    let identity = Identity::new("a", Incarnation::new(1)).unwrap();
    let mut node = Node::new(identity, SplitMix::new(1));
    node.acquire(Instant::ZERO, LeaseName::new("a").unwrap(), LeaseOptions::new(timing)).unwrap();
    let Output::Command(command) = node.poll() else { panic!("it does not campaign") };
    let id = command.id().unwrap();
    let kind = Operation::of(&command, &node, &Metadata::new()).unwrap().kind();
    assert_eq!(kind, OperationKind::Acquire);

    let failed = |failure| Event::Reply { id, reply: Reply::Failed(failure) };
    assert_eq!(kind.event(id, &Ok(Answer::Renew(Renewed::Renewed))), failed(Failure::Unknown));
    assert_eq!(kind.event(id, &Err(StoreError::transient("busy"))), failed(Failure::NotExecuted));
    assert_eq!(kind.event(id, &Err(StoreError::rejected("no"))), failed(Failure::Refused));
    let granted = kind.event(id, &Ok(Answer::Acquire(Acquired::Granted(Token::new(7)))));
    assert_eq!(granted, Event::Reply { id, reply: Reply::Granted { token: Token::new(7) } });
}
