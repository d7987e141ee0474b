use alloc::string::{String, ToString};

use super::{Acquisition, Identity, Incarnation, LeaseName, NameError, TimerName};

#[test]
fn any_utf8_of_1_to_255_bytes_is_a_lease_name() {
    for name in ["a", "a/b", "\u{0}", "a b", "é", "e\u{301}", "*", ">", ".", "{x}", "🦀", "\n"] {
        assert_eq!(LeaseName::new(name).expect(name).as_str(), name);
    }
    let longest = "x".repeat(255);
    assert_eq!(LeaseName::new(&longest).expect("255 bytes").as_str(), longest);
    assert_eq!(LeaseName::new(""), Err(NameError::Empty { what: "a lease name" }));
    let too_long = NameError::TooLong { what: "a lease name", bytes: 256, most: 255 };
    assert_eq!(LeaseName::new("x".repeat(256)), Err(too_long.clone()));
    assert_eq!(LeaseName::new("é".repeat(128)), Err(too_long.clone()), "bytes count, not letters");
    assert_eq!(too_long.to_string(), "a lease name has 256 bytes, at most 255 are allowed");
}

#[test]
fn names_that_look_alike_are_different_names() {
    assert_ne!(LeaseName::new("A"), LeaseName::new("a"));
    assert_ne!(LeaseName::new("\u{e9}"), LeaseName::new("e\u{301}"));
    let tail = |end: &str| LeaseName::new("x".repeat(200) + end);
    assert_ne!(tail("1"), tail("2"));
}

#[test]
fn an_owner_is_the_instance_the_incarnation_and_the_number_of_the_acquisition() {
    let identity = Identity::new("host:12:a", Incarnation::new(0xff)).expect("a fine name");
    let owner = identity.owner(Acquisition(3));
    assert_eq!(owner.to_string(), String::from("host:12:a/000000000000000000000000000000ff.3"));
    let restarted = Identity::new("host:12:a", Incarnation::new(0xfe)).expect("a fine name");
    assert_ne!(restarted.owner(Acquisition(3)), owner, "a restart under the same name is a stranger");
}

#[test]
fn an_instance_name_is_one_line_of_at_most_200_bytes() {
    let incarnation = Incarnation::new(1);
    assert!(Identity::new("x".repeat(200), incarnation).is_ok());
    assert!(matches!(Identity::new("x".repeat(201), incarnation), Err(NameError::TooLong { .. })));
    assert!(matches!(Identity::new("", incarnation), Err(NameError::Empty { .. })));
    assert!(matches!(Identity::new("a\nb", incarnation), Err(NameError::Character { character: '\n', .. })));
}

#[test]
fn a_name_can_be_given_wherever_one_is_read_from_text() {
    let name = TimerName::new("reports").unwrap();
    assert_eq!(TimerName::new(&name), Ok(name.clone()));
    assert_eq!(LeaseName::new(&name).unwrap().as_str(), name.as_str());
}
