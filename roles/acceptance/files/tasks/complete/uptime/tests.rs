use answer::*;

#[test]
fn seconds_stand_for_themselves() {
    assert_eq!(uptime(0), "0s");
    assert_eq!(uptime(1), "1s");
    assert_eq!(uptime(59), "59s");
}

#[test]
fn two_units_are_shown() {
    assert_eq!(uptime(61), "1m 1s");
    assert_eq!(uptime(3_599), "59m 59s");
    assert_eq!(uptime(3_660), "1h 1m");
    assert_eq!(uptime(93_784), "1d 2h");
}

#[test]
fn full_units_stand_by_themselves() {
    assert_eq!(uptime(60), "1m");
    assert_eq!(uptime(3_600), "1h");
    assert_eq!(uptime(86_400), "1d");
    assert_eq!(uptime(864_000), "10d");
}

#[test]
fn zero_of_the_next_unit_ends_it() {
    assert_eq!(uptime(3_601), "1h");
    assert_eq!(uptime(86_400 + 60), "1d");
    assert_eq!(uptime(86_400 + 3_599), "1d");
}

#[test]
fn smaller_units_are_dropped() {
    assert_eq!(uptime(86_400 + 7_199), "1d 1h");
    assert_eq!(uptime(2 * 3_600 + 119), "2h 1m");
}

#[test]
fn largest_number_is_shown() {
    assert_eq!(uptime(u64::MAX), "213503982334601d 7h");
}
