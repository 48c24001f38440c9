use answer::*;

fn scheduler(base_ms: u64, cap_ms: u64, max_tries: u32) -> Scheduler {
    Scheduler::new(Policy { base_ms, cap_ms, max_tries })
}

#[test]
fn deliveries_wait_for_their_time() {
    let mut seen = scheduler(10, 100, 3);
    assert_eq!((seen.next_at(), seen.due(u64::MAX)), (None, vec![]));
    assert!(seen.submit("b", 20) && seen.submit("a", 10));
    assert_eq!((seen.next_at(), seen.due(9)), (Some(10), vec![]));
    assert_eq!(seen.due(10), ["a"]);
    assert_eq!((seen.due(19), seen.next_at()), (vec![], Some(20)));
    assert_eq!((seen.due(500), seen.next_at()), (vec!["b".to_string()], None));
}

#[test]
fn equal_times_keep_the_order_of_waiting() {
    let mut seen = scheduler(10, 100, 9);
    for (id, at) in [("z", 5), ("x", 0), ("y", 5)] {
        assert!(seen.submit(id, at));
    }
    assert_eq!(seen.due(0), ["x"]);
    assert_eq!(seen.due(5), ["z", "y"]);
    assert!(seen.submit("a", 30));
    assert_eq!((seen.failed("y", 20), seen.failed("x", 20), seen.failed("z", 19)), (Some(30), Some(30), Some(29)));
    assert_eq!(seen.due(30), ["z", "a", "y", "x"]);
}

#[test]
fn delays_double_up_to_the_cap() {
    let mut seen = scheduler(100, 350, 9);
    seen.submit("a", 0);
    let mut now = 0;
    for delay in [100, 200, 350, 350] {
        assert_eq!(seen.due(now), ["a"]);
        assert_eq!(seen.failed("a", now + 1), Some(now + 1 + delay));
        now += 1 + delay;
    }
}

#[test]
fn delivery_is_given_up_after_its_tries() {
    let mut seen = scheduler(1, 1, 2);
    for id in ["b", "a"] {
        seen.submit(id, 0);
    }
    assert_eq!(seen.due(0).len(), 2);
    assert_eq!((seen.failed("a", 0), seen.failed("b", 0)), (Some(1), Some(1)));
    assert_eq!(seen.due(1), ["a", "b"]);
    assert_eq!((seen.failed("b", 1), seen.failed("a", 1)), (None, None));
    assert_eq!((seen.dead(), seen.next_at()), (&["b".to_string(), "a".to_string()][..], None));
}

#[test]
fn ids_are_not_submitted_twice() {
    let mut seen = scheduler(5, 5, 3);
    assert!(seen.submit("a", 10) && !seen.submit("a", 0));
    assert_eq!(seen.next_at(), Some(10));
    seen.due(10);
    assert!(!seen.submit("a", 0));
    assert_eq!(seen.failed("a", 10), Some(15));
    assert!(!seen.submit("a", 0));
    assert_eq!(seen.due(15), ["a"]);
    assert!(seen.succeeded("a") && seen.submit("a", 0));
}

#[test]
fn only_running_deliveries_end() {
    let mut seen = scheduler(5, 5, 3);
    seen.submit("a", 10);
    assert_eq!((seen.failed("a", 0), seen.succeeded("a"), seen.failed("x", 0)), (None, false, None));
    assert_eq!((seen.next_at(), seen.dead().len()), (Some(10), 0));
    seen.due(10);
    assert!(seen.succeeded("a") && !seen.succeeded("a"));
    assert_eq!((seen.failed("a", 10), seen.dead().len(), seen.next_at()), (None, 0, None));
}

#[test]
fn resubmitted_delivery_has_no_tries() {
    let mut seen = scheduler(10, 100, 1);
    for dead in [1, 2] {
        assert!(seen.submit("a", 0));
        seen.due(0);
        assert_eq!((seen.failed("a", 0), seen.dead().len()), (None, dead));
    }
    let mut seen = scheduler(10, 100, 5);
    seen.submit("a", 0);
    seen.due(0);
    seen.failed("a", 0);
    seen.due(10);
    assert!(seen.succeeded("a") && seen.submit("a", 20));
    seen.due(20);
    assert_eq!(seen.failed("a", 20), Some(30));
}

#[test]
fn nothing_overflows() {
    let mut seen = scheduler(u64::MAX / 2, u64::MAX, 200);
    seen.submit("a", 0);
    for _ in 0..100 {
        assert_eq!(seen.due(u64::MAX), ["a"]);
        assert_eq!(seen.failed("a", u64::MAX - 1), Some(u64::MAX));
    }
    let mut seen = scheduler(1, 7, 200);
    seen.submit("a", 0);
    for tries in 1..=100 {
        seen.due(u64::MAX);
        assert_eq!(seen.failed("a", 0), Some([1, 2, 4, 7][tries.min(4) - 1]));
    }
}
