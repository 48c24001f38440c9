use answer::*;

#[test]
fn events_up_to_the_limit_are_allowed() {
    let mut window = Window::new(3, 1_000);
    let found: Vec<bool> = [0, 0, 10, 20, 999].iter().map(|&now| window.allow(now)).collect();
    assert_eq!(found, [true, true, true, false, false]);
}

#[test]
fn old_events_no_longer_count() {
    let mut window = Window::new(2, 100);
    assert!(window.allow(50) && window.allow(60));
    assert!(!window.allow(149));
    assert!(window.allow(150));
    assert!(!window.allow(159));
    assert!(window.allow(160));
}

#[test]
fn refused_events_do_not_count() {
    let mut window = Window::new(1, 100);
    assert!(window.allow(0));
    for now in 1..100 {
        assert!(!window.allow(now));
    }
    assert!(window.allow(100));
}

#[test]
fn wait_is_until_the_oldest_leaves() {
    let mut window = Window::new(2, 100);
    assert_eq!(window.wait_ms(0), Some(0));
    window.allow(10);
    assert_eq!(window.wait_ms(10), Some(0));
    window.allow(30);
    assert_eq!(window.wait_ms(30), Some(80));
    assert_eq!(window.wait_ms(109), Some(1));
    assert_eq!(window.wait_ms(110), Some(0));
}

#[test]
fn wait_changes_nothing() {
    let mut window = Window::new(1, 100);
    assert_eq!((window.wait_ms(5), window.wait_ms(5)), (Some(0), Some(0)));
    assert!(window.allow(5));
    assert_eq!(window.wait_ms(105), Some(0));
    assert_eq!(window.wait_ms(6), Some(99));
}

#[test]
fn no_limit_allows_nothing() {
    let mut window = Window::new(0, 100);
    assert!(!window.allow(0) && !window.allow(1_000));
    assert_eq!(window.wait_ms(2_000), None);
}

#[test]
fn late_times_do_not_overflow() {
    let mut window = Window::new(1, u64::MAX);
    assert!(window.allow(5));
    assert!(!window.allow(u64::MAX));
    let mut short = Window::new(1, 10);
    assert!(short.allow(u64::MAX - 3));
    assert!(!short.allow(u64::MAX));
    assert_eq!(short.wait_ms(u64::MAX), Some(7));
}

#[test]
fn empty_window_allows_each_time() {
    let mut window = Window::new(1, 0);
    assert!(window.allow(7) && window.allow(7) && window.allow(8));
    assert_eq!(window.wait_ms(8), Some(0));
}
