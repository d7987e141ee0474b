use futures::FutureExt as _;

use super::*;

fn pushes() -> (Pushes, LeaseName) {
    let pushes = Pushes::new("me", &Names::new(&"b".into()));
    let name = LeaseName::new("a b").unwrap();
    pushes.lock().leases.insert(name.clone(), Watched::default());
    (pushes, name)
}

fn wakes(pushes: &Pushes, name: &LeaseName, text: &str) -> Option<Wake> {
    match pushes.hint(&pushes.names.wake(name), text)? {
        Hint::Lease { name: of, wake } if of == *name => Some(wake),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn what_others_tell_is_a_hint_and_what_nobody_can_mean_is_none() {
    let (pushes, name) = pushes();
    assert_eq!(wakes(&pushes, &name, "free other +0"), Some(Wake::Free { chosen: false }));
    assert_eq!(wakes(&pushes, &name, "free other me x +5"), Some(Wake::Free { chosen: true }));
    assert_eq!(
        wakes(&pushes, &name, "held other 77 1500"),
        Some(Wake::Held { token: Token::new(77), ttl: Duration::from_millis(1500) })
    );
    for text in
        ["", "free", "free me +0", "held me 1 1", "held other", "held other x 1", "held other 1", "so what"]
    {
        assert_eq!(wakes(&pushes, &name, text), None, "{text}");
    }
    let other = LeaseName::new("not watched").unwrap();
    assert_eq!(wakes(&pushes, &other, "free other +0"), None);
    assert_eq!(pushes.hint("tenure.c.lease.ka=20b", "free other +0"), None, "another bucket");
}

#[test]
fn of_many_who_wait_those_that_were_not_chosen_hear_later_and_only_if_it_is_still_free() {
    let (pushes, name) = pushes();
    let mut hints = pushes.hints.listen().unwrap();
    assert_eq!(wakes(&pushes, &name, "free other x y +1000"), None);
    let at = pushes.tell_what_is_free(clock::now()).expect("it is held back");
    assert_eq!(hints.next().now_or_never(), None);
    assert_eq!(pushes.tell_what_is_free(at), None);
    let free = Hint::Lease { name: name.clone(), wake: Wake::Free { chosen: false } };
    assert_eq!(hints.next().now_or_never(), Some(Some(free)));
    assert_eq!(wakes(&pushes, &name, "free other x y +1000"), None);
    assert!(wakes(&pushes, &name, "held x 5 1000").is_some());
    assert_eq!(pushes.tell_what_is_free(at + LONGEST_START * 2), None);
    assert_eq!(hints.next().now_or_never(), None, "somebody has it");
}

#[test]
fn what_is_found_free_is_told_once_until_somebody_has_it() {
    let (pushes, name) = pushes();
    let mut hints = pushes.hints.listen().unwrap();
    let mut told = || hints.next().now_or_never().flatten().is_some();
    pushes.found(&name, false);
    assert!(!told());
    pushes.found(&name, true);
    assert!(told());
    pushes.found(&name, true);
    assert!(!told(), "it is known");
    pushes.found(&name, false);
    pushes.found(&name, true);
    assert!(told());
    wakes(&pushes, &name, "held x 5 1000");
    wakes(&pushes, &name, "free x +0");
    pushes.found(&name, true);
    assert!(!told(), "it was told by who released it");
}

#[test]
fn a_version_that_this_handle_does_not_know_is_a_hint_once() {
    let (pushes, _) = pushes();
    let hint = |text: &str| pushes.hint(&pushes.names.wake_members(), text);
    assert_eq!(hint("5 other"), None, "it sends no heartbeats");
    pushes.lock().members = Some(Members::default());
    pushes.told_members(5, None);
    assert_eq!(hint("5 other"), None);
    assert_eq!(hint("6 other"), Some(Hint::Members));
    assert_eq!(hint("6 other"), None);
    assert_eq!(hint("7 me"), None);
    assert_eq!(hint("x other"), None);
}

#[test]
fn who_may_be_gone_is_told_once() {
    let (pushes, _) = pushes();
    let mut hints = pushes.hints.listen().unwrap();
    pushes.lock().members = Some(Members::default());
    pushes.told_members(1, Some(Duration::ZERO));
    let at = pushes.tell_who_may_be_gone(clock::now()).unwrap_or_default();
    assert_eq!(pushes.tell_who_may_be_gone(at + LONGEST_START), None);
    assert_eq!(hints.next().now_or_never(), Some(Some(Hint::Members)));
    assert_eq!(hints.next().now_or_never(), None);
}
