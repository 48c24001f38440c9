use answer::*;

const USUAL: Backoff = Backoff { first_ms: 200, limit_ms: 60_000 };

#[test]
fn first_start_does_not_wait() {
    assert_eq!(USUAL.delay_ms(0), 0);
}

#[test]
fn delay_doubles_from_the_first() {
    let delays: Vec<u64> = (1..=5).map(|attempt| USUAL.delay_ms(attempt)).collect();
    assert_eq!(delays, [200, 400, 800, 1_600, 3_200]);
}

#[test]
fn delay_stops_at_the_limit() {
    assert_eq!(USUAL.delay_ms(9), 51_200);
    assert_eq!(USUAL.delay_ms(10), 60_000);
    assert_eq!(Backoff { first_ms: 500, limit_ms: 300 }.delay_ms(1), 300);
}

#[test]
fn late_attempts_wait_for_the_limit() {
    let four = Backoff { first_ms: 4, limit_ms: 1_000 };
    for attempt in [63, 64, 65, 66, 128, 1_000, u32::MAX] {
        assert_eq!(four.delay_ms(attempt), 1_000, "attempt {}", attempt);
    }
}

#[test]
fn doubling_is_exact_near_the_end() {
    let one = Backoff { first_ms: 1, limit_ms: u64::MAX };
    assert_eq!(one.delay_ms(64), 1 << 63);
    assert_eq!(one.delay_ms(65), u64::MAX);
    let three = Backoff { first_ms: 3, limit_ms: u64::MAX };
    assert_eq!(three.delay_ms(63), 3 << 62);
    assert_eq!(three.delay_ms(64), u64::MAX);
}

#[test]
fn nothing_doubled_is_nothing() {
    let never = Backoff { first_ms: 0, limit_ms: 1_000 };
    assert_eq!((never.delay_ms(1), never.delay_ms(500)), (0, 0));
}

#[test]
fn total_has_the_last_attempt() {
    assert_eq!(USUAL.total_ms(0), 0);
    assert_eq!(USUAL.total_ms(1), 200);
    assert_eq!(USUAL.total_ms(4), 3_000);
}

#[test]
fn large_totals_are_cut() {
    let long = Backoff { first_ms: u64::MAX / 2, limit_ms: u64::MAX };
    assert_eq!(long.total_ms(1), u64::MAX / 2);
    assert_eq!(long.total_ms(2), u64::MAX);
    assert_eq!(long.total_ms(100_000), u64::MAX);
}
