//! What holds whatever happens: any sequence of events, honest or hostile, into the machines.

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::*;

const SECOND: u64 = 1_000_000_000;
const TTL: Duration = Duration::from_secs(1);

fn timing() -> LeaseTiming {
    LeaseConfig::new(TTL).resolve(&StoreClock::default()).unwrap()
}

fn options() -> LeaseOptions {
    let mut options = LeaseOptions::new(timing());
    options.grace = Duration::from_millis(300);
    options
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_events_panics_and_misuse_changes_nothing(steps in prop::collection::vec(step(), 1..200)) {
        hostile(&steps)?;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Acquire {
        name: u8,
        wait: u8,
        max_hold: bool,
    },
    Release(u8),
    Drain(u8),
    Exited(u8),
    Timeout,
    Reply {
        command: u8,
        reply: Reply,
    },
    Forged {
        machine: u8,
        reply: Reply,
    },
    Hint {
        name: u8,
        wake: Wake,
    },
    Resync,
    Shutdown,
    /// Milliseconds, forwards or backwards.
    Time(i32),
    Drained,
}

fn reply() -> impl Strategy<Value = Reply> {
    let token = || (0..20_u64).prop_map(Token::new);
    let millis = prop_oneof![(0..3_000_u64).prop_map(Duration::from_millis), Just(Duration::MAX)];
    prop_oneof![
        4 => token().prop_map(|token| Reply::Granted { token }),
        2 => (prop::option::of(token()), prop::option::of(millis))
            .prop_map(|(token, remaining)| Reply::Held { token, remaining }),
        3 => Just(Reply::Renewed),
        1 => Just(Reply::NotYours),
        2 => any::<bool>().prop_map(|others_chosen| Reply::Released { others_chosen }),
        1 => Just(Reply::Watching),
        1 => Just(Reply::Failed(Failure::Unknown)),
        1 => Just(Reply::Failed(Failure::NotExecuted)),
        1 => Just(Reply::Failed(Failure::Refused)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let wake = prop_oneof![
        any::<bool>().prop_map(|chosen| Wake::Free { chosen }),
        (0..20_u64, any::<u64>())
            .prop_map(|(token, ttl)| Wake::Held { token: Token::new(token), ttl: Duration::from_nanos(ttl) }),
    ];
    prop_oneof![
        3 => (0..3_u8, 0..3_u8, any::<bool>())
            .prop_map(|(name, wait, max_hold)| Step::Acquire { name, wait, max_hold }),
        1 => any::<u8>().prop_map(Step::Release),
        1 => any::<u8>().prop_map(Step::Drain),
        1 => any::<u8>().prop_map(Step::Exited),
        4 => Just(Step::Timeout),
        8 => (any::<u8>(), reply()).prop_map(|(command, reply)| Step::Reply { command, reply }),
        1 => (any::<u8>(), reply()).prop_map(|(machine, reply)| Step::Forged { machine, reply }),
        2 => (0..3_u8, wake).prop_map(|(name, wake)| Step::Hint { name, wake }),
        1 => Just(Step::Resync),
        1 => (0..100_u8).prop_map(|rare| if rare == 0 { Step::Shutdown } else { Step::Drained }),
        4 => (-500..2_000_i32).prop_map(Step::Time),
        1 => any::<i32>().prop_map(|by| Step::Time(by.saturating_abs())),
        4 => Just(Step::Drained),
    ]
}

struct Hostile {
    node: Node<SplitMix>,
    commands: Vec<CommandId>,
    keys: Vec<LeaseKey>,
    wait: Option<Instant>,
}

impl Hostile {
    /// Polls until there is nothing more, which must be soon.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            match self.node.poll() {
                Output::Command(command) => self.commands.extend(command.id()),
                Output::Notice(_) => {}
                Output::Wait(wait) => {
                    self.wait = wait;
                    return;
                }
            }
        }
        panic!("poll never comes to an end");
    }
}

fn hostile(steps: &[Step]) -> Result<(), TestCaseError> {
    let identity = Identity::new("hostile", Incarnation::new(1)).unwrap();
    let mut it =
        Hostile { node: Node::new(identity, SplitMix::new(1)), commands: vec![], keys: vec![], wait: None };
    let mut clock = 10 * SECOND;
    let mut latest = Instant::ZERO;
    let pick = |keys: &[LeaseKey], index: u8| keys.get(usize::from(index) % keys.len().max(1)).copied();
    for step in steps {
        let now = Instant::from_nanos(clock);
        latest = latest.max(now);
        let before = it.node.clone();
        let result = match step {
            Step::Acquire { name, wait, max_hold } => {
                let mut options = options();
                options.wait = match wait {
                    0 => WaitLimit::Forever,
                    1 => WaitLimit::AtMost(Duration::from_millis(700)),
                    _ => WaitLimit::No,
                };
                options.max_hold = max_hold.then_some(Duration::from_secs(2));
                let name = LeaseName::new(format!("name-{name}")).unwrap();
                it.node.acquire(now, name, options).map(|key| it.keys.push(key))
            }
            Step::Release(index) => pick(&it.keys, *index).map_or(Ok(()), |key| it.node.release(now, key)),
            Step::Drain(index) => pick(&it.keys, *index).map_or(Ok(()), |key| it.node.drain(now, key)),
            Step::Exited(index) => pick(&it.keys, *index).map_or(Ok(()), |lease| {
                it.node.handle(now, Event::WorkloadExited { lease, exit: Exit::Completed })
            }),
            Step::Timeout => it.node.handle(now, Event::Timeout),
            Step::Reply { command, reply } => {
                let count = it.commands.len().max(1);
                // Mostly the latest commands, sometimes any.
                let index = if *command < 200 {
                    count.saturating_sub(1 + usize::from(*command) % 4)
                } else {
                    usize::from(*command) % count
                };
                match it.commands.get(index).copied() {
                    Some(id) => it.node.handle(now, Event::Reply { id, reply: *reply }),
                    None => Ok(()),
                }
            }
            Step::Forged { machine, reply } => {
                // An id of another node.
                let identity = Identity::new("other", Incarnation::new(2)).unwrap();
                let mut other = Node::new(identity, SplitMix::new(2));
                for _ in 0..=*machine {
                    other.acquire(now, LeaseName::new("x").unwrap(), options()).unwrap();
                }
                let Output::Command(command) = other.poll() else { panic!("an attempt was expected") };
                it.node.handle(now, Event::Reply { id: command.id().unwrap(), reply: *reply })
            }
            Step::Hint { name, wake } => {
                let name = LeaseName::new(format!("name-{name}")).unwrap();
                it.node.handle(now, Event::Hint { name, wake: *wake })
            }
            Step::Resync => it.node.handle(now, Event::Resync),
            Step::Shutdown => {
                it.node.shutdown(now);
                Ok(())
            }
            Step::Time(by) => {
                clock = (clock as i64 + i64::from(*by) * 1_000_000) as u64;
                Ok(())
            }
            Step::Drained => {
                it.drain();
                Ok(())
            }
        };
        if result.is_err() {
            prop_assert_eq!(&it.node, &before, "misuse must change nothing");
        }
        if matches!(step, Step::Timeout) {
            it.drain();
            prop_assert!(
                it.wait.is_none_or(|wait| wait > now),
                "after a timeout at {:?}: {:?}",
                now,
                it.wait
            );
            // Repeated, or early, it does nothing.
            let settled = it.node.clone();
            it.node.handle(now, Event::Timeout).unwrap();
            it.drain();
            prop_assert_eq!(&it.node, &settled);
        }
    }
    // Whatever was done to it, it ends when everything is given up and time passes.
    it.node.shutdown(latest);
    it.drain();
    for key in it.keys.clone() {
        it.node.release(latest, key).unwrap();
    }
    it.drain();
    for _ in 0..10_000 {
        let Some(wait) = it.wait else { break };
        it.node.handle(wait, Event::Timeout).unwrap();
        it.drain();
    }
    prop_assert!(it.node.is_empty(), "{} leases never end", it.node.len());
    Ok(())
}
