use futures::FutureExt as _;

use super::*;

const CHANNEL: &[u8] = b"tenure!wake:backup";

fn watching() -> (Pushes, HintStream) {
    let pushes = Pushes::new("me");
    let hints = pushes.hints.listen().unwrap();
    let watched = Watched::new(name(), Route::FIRST);
    pushes.lock().leases.insert(CHANNEL.to_vec(), watched);
    (pushes, hints)
}

fn name() -> LeaseName {
    LeaseName::new("backup").unwrap()
}

fn message(channel: &[u8], text: &[u8]) -> PushInfo {
    let data = vec![Value::BulkString(channel.to_vec()), Value::BulkString(text.to_vec())];
    PushInfo { kind: PushKind::Message, data }
}

fn next(hints: &mut HintStream) -> Option<Hint> {
    hints.next().now_or_never().flatten()
}

#[test]
fn messages_on_the_channel_of_a_watched_lease_become_hints() {
    let (pushes, mut hints) = watching();
    let (free, held) = (
        |chosen| Wake::Free { chosen },
        Wake::Held { token: Token::new(7), ttl: Duration::from_millis(900) },
    );
    for (text, wake) in [
        ("free other", free(false)),
        ("free other one another", free(false)),
        ("free other one me", free(true)),
        ("free - me one", free(true)),
        ("held other 7 900", held),
        ("held other 7 900 and what is to come", held),
    ] {
        pushes.push(message(CHANNEL, text.as_bytes()));
        assert_eq!(next(&mut hints), Some(Hint::Lease { name: name(), wake }), "{text}");
    }
}

/// A thousand who wait would try before each of them has heard that the lease is held again.
#[test]
fn many_who_were_not_chosen_leave_a_start_that_ends_when_somebody_has_the_lease() {
    let (pushes, mut hints) = watching();
    let free = |chosen| Some(Hint::Lease { name: name(), wake: Wake::Free { chosen } });
    let push = |text: &str| pushes.push(message(CHANNEL, text.as_bytes()));

    push("free other one me +998");
    assert_eq!(next(&mut hints), free(true), "who was chosen hears it at once");
    push("free other one another +20");
    assert_eq!(next(&mut hints), free(false), "few hear it at once");

    let begin = clock::now();
    push("free other one another +998");
    assert_eq!(next(&mut hints), None);
    let at = pushes.tell_what_is_free(begin).unwrap();
    assert!(at >= begin + START_FOR_EACH * 998, "{at:?}");
    push("free other one another +18446744073709551615");
    assert_eq!(pushes.tell_what_is_free(begin), Some(at), "the first start counts");
    assert_eq!((pushes.tell_what_is_free(at), next(&mut hints)), (None, free(false)), "and ends");

    push("free other one another +998");
    push("held other 7 900");
    let held = Wake::Held { token: Token::new(7), ttl: Duration::from_millis(900) };
    assert_eq!(next(&mut hints), Some(Hint::Lease { name: name(), wake: held }));
    assert_eq!(pushes.tell_what_is_free(clock::now() + LONGEST_START), None);
    assert_eq!(next(&mut hints), None, "it is not free any more");

    push("free other one another +18446744073709551615");
    let at = pushes.tell_what_is_free(begin).unwrap();
    assert!(at <= clock::now() + LONGEST_START, "nobody waits longer than that");
}

#[test]
fn what_is_no_news_or_makes_no_sense_is_dropped() {
    let (pushes, mut hints) = watching();
    let texts: [&[u8]; 12] = [
        b"free me",
        b"free me one me",
        b"held me 7 900",
        b"",
        b"free",
        b"held other",
        b"held other 7",
        b"held other x 900",
        b"held other 7 -1",
        b"other me",
        b"\xff\xfe",
        b"FREE other",
    ];
    for text in texts {
        pushes.push(message(CHANNEL, text));
    }
    pushes.push(message(b"tenure!wake:another", b"free other"));
    pushes.push(PushInfo { kind: PushKind::Message, data: Vec::new() });
    pushes.push(PushInfo { kind: PushKind::Invalidate, data: vec![Value::Nil] });
    assert_eq!(next(&mut hints), None);
}

/// That it listens to the members, on this channel.
fn listening_to_members() -> (Pushes, HintStream) {
    let (pushes, hints) = watching();
    let members = Members { channel: b"tenure!wake-members".to_vec(), told: 0, next_end: None };
    pushes.lock().members = Some(members);
    (pushes, hints)
}

#[test]
fn another_version_of_the_members_is_news_once() {
    let (pushes, mut hints) = listening_to_members();
    pushes.told_members(3, None);
    let told = |text: &str| pushes.push(message(b"tenure!wake-members", text.as_bytes()));
    told("3 other");
    for nonsense in ["nonsense", "4", "x other", "-4 other", ""] {
        told(nonsense);
    }
    assert_eq!(next(&mut hints), None, "it knows of this one");
    told("4 other");
    told("4 other");
    assert_eq!(next(&mut hints), Some(Hint::Members));
    assert_eq!(next(&mut hints), None);
    told("5 me");
    pushes.told_members(5, None);
    assert_eq!(next(&mut hints), None, "the answer to its own heartbeat tells of this one");
    told("6 -");
    assert_eq!(next(&mut hints), Some(Hint::Members), "what its own operator did is news");
    told("2 other");
    assert_eq!(next(&mut hints), Some(Hint::Members), "the server has lost its memory");
}

#[test]
fn an_answer_that_is_late_does_not_take_back_what_was_heard_meanwhile() {
    let (pushes, mut hints) = listening_to_members();
    pushes.push(message(b"tenure!wake-members", b"4 other"));
    pushes.told_members(3, None);
    pushes.push(message(b"tenure!wake-members", b"4 other"));
    assert_eq!(next(&mut hints), Some(Hint::Members));
    assert_eq!(next(&mut hints), None);
}

#[test]
fn a_member_that_may_be_gone_is_hinted_at_once() {
    let (pushes, mut hints) = listening_to_members();
    pushes.told_members(3, Some(Duration::from_secs(5)));
    let end = pushes.look_at_members().unwrap();
    let (soonest, latest) = (clock::now() + Duration::from_secs(4), clock::now() + Duration::from_secs(6));
    assert!(soonest < end && end < latest, "{end:?}");
    pushes.members_may_be_gone();
    pushes.members_may_be_gone();
    assert_eq!((next(&mut hints), next(&mut hints)), (Some(Hint::Members), None));
    assert_eq!(pushes.look_at_members(), None);
    pushes.told_members(4, Some(Duration::from_secs(5)));
    pushes.told_members(5, None);
    assert_eq!(pushes.look_at_members(), None, "it is alone now");
}

#[test]
fn a_connection_that_was_lost_matters_to_who_listens_on_it() {
    let lost = || PushInfo { kind: PushKind::Disconnection, data: Vec::new() };
    let pushes = Pushes::new("me");
    pushes.push(lost());
    assert!(!pushes.lock().lost, "nothing was listened to");
    let (pushes, _hints) = watching();
    pushes.push(lost());
    assert!(pushes.lock().lost);
}

#[test]
fn a_closed_handle_hears_nothing_more() {
    let (pushes, mut hints) = watching();
    pushes.close();
    pushes.push(message(CHANNEL, b"free other"));
    assert_eq!(hints.next().now_or_never(), Some(None));
}

#[test]
fn a_lease_is_looked_at_as_long_as_its_holder_may_tell_nobody_of_the_end() {
    let (pushes, _hints) = watching();
    let foreign = || pushes.lock().leases[CHANNEL].foreign;
    for (last, looked_at) in [(false, false), (true, true), (true, true), (false, false)] {
        pushes.is_held(CHANNEL, last);
        assert_eq!(foreign(), looked_at);
    }
    pushes.is_held(b"tenure!wake:another", true);
    assert!(!pushes.watches(b"tenure!wake:another"), "nobody watches that one");
}
