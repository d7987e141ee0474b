use futures::FutureExt as _;

use super::*;

const CHANNEL: &[u8] = b"tenure!wake:backup";

fn watching() -> (Pushes, HintStream) {
    let pushes = Pushes::new("me");
    let hints = pushes.hints.listen().unwrap();
    let watched = Watched { name: name(), route: crate::keys::Route::FIRST, foreign: false };
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

#[test]
fn another_version_of_the_members_is_news_once() {
    let (pushes, mut hints) = watching();
    assert!(!pushes.told_members(3), "it does not listen to them yet");
    pushes.lock().members = Some((b"tenure!wake-members".to_vec(), 0));
    assert!(pushes.told_members(3));
    let told = |text: &str| pushes.push(message(b"tenure!wake-members", text.as_bytes()));
    told("3");
    told("nonsense");
    assert_eq!(next(&mut hints), None, "it knows of this one");
    told("4");
    told("4");
    assert_eq!(next(&mut hints), Some(Hint::Members));
    assert_eq!(next(&mut hints), None);
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
