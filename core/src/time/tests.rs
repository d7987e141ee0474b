use alloc::string::ToString;

use super::Timestamp;

#[test]
fn a_timestamp_is_shown_in_utc_as_rfc_3339_has_it() {
    let shown = |seconds: i64, nanos: i64| {
        Timestamp::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)).to_string()
    };
    assert_eq!(shown(0, 0), "1970-01-01T00:00:00Z");
    assert_eq!(shown(0, -1), "1969-12-31T23:59:59.999999999Z");
    assert_eq!(shown(951_782_400, 0), "2000-02-29T00:00:00Z");
    assert_eq!(shown(951_868_799, 250_000_000), "2000-02-29T23:59:59.25Z");
    assert_eq!(shown(951_868_800, 50), "2000-03-01T00:00:00.00000005Z");
    assert_eq!(shown(1_735_689_599, 0), "2024-12-31T23:59:59Z");
    // 2100 is no leap year.
    assert_eq!(shown(4_107_542_399, 0), "2100-02-28T23:59:59Z");
    assert_eq!(shown(4_107_542_400, 0), "2100-03-01T00:00:00Z");
    assert_eq!(Timestamp::MAX.to_string(), "2262-04-11T23:47:16.854775807Z");
    assert_eq!(Timestamp::from_nanos(i64::MIN).to_string(), "1677-09-21T00:12:43.145224192Z");
}

#[test]
fn durations_are_shown_in_a_unit_that_fits() {
    for (nanos, shown) in [
        (0, "0s"),
        (1, "1ns"),
        (50_000_000, "50ms"),
        (1_500_000_000, "1.5s"),
        (90_000_000_000, "90s"),
        (3_600_000_000_000, "1h"),
        (604_800_000_000_000, "7d"),
    ] {
        assert_eq!(super::readable(core::time::Duration::from_nanos(nanos)).to_string(), shown);
    }
}
