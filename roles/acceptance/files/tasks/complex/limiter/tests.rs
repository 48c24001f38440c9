use answer::*;
use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Default)]
struct Manual(Rc<Cell<u64>>);

impl Clock for Manual {
    fn now_ms(&self) -> u64 {
        self.0.get()
    }
}

fn limiter(capacity: u32, per_second: u32) -> (Manual, Limiter<Manual>) {
    let clock = Manual::default();
    clock.0.set(5000);
    (clock.clone(), Limiter::new(clock, capacity, per_second))
}

#[test]
fn full_bucket_is_emptied() {
    let (_, mut limiter) = limiter(3, 1);
    assert_eq!(limiter.allow("a", 1), Ok(2));
    assert_eq!(limiter.allow("a", 2), Ok(0));
    assert_eq!(limiter.allow("a", 0), Ok(0));
    assert_eq!(limiter.allow("a", 1), Err(Refused::After(1000)));
    assert_eq!(limiter.allow("a", 3), Err(Refused::After(3000)));
}

#[test]
fn clients_do_not_share() {
    let (_, mut limiter) = limiter(2, 1);
    assert_eq!(limiter.allow("a", 2), Ok(0));
    assert_eq!(limiter.allow("b", 1), Ok(1));
    assert_eq!(limiter.clients(), 2);
}

#[test]
fn announced_time_is_exact() {
    let (clock, mut limiter) = limiter(10, 3);
    assert_eq!(limiter.allow("a", 10), Ok(0));
    assert_eq!(limiter.allow("a", 1), Err(Refused::After(334)));
    clock.0.set(5333);
    assert_eq!(limiter.allow("a", 1), Err(Refused::After(1)));
    clock.0.set(5334);
    assert_eq!(limiter.allow("a", 1), Ok(0));
}

#[test]
fn fractions_are_kept() {
    let (clock, mut limiter) = limiter(5, 2);
    assert_eq!(limiter.allow("a", 5), Ok(0));
    for ms in 1..=499 {
        clock.0.set(5000 + ms);
        assert_eq!(limiter.allow("a", 0), Ok(0));
    }
    clock.0.set(5500);
    assert_eq!(limiter.allow("a", 0), Ok(1));
    clock.0.set(6000);
    assert_eq!(limiter.allow("a", 2), Ok(0));
}

#[test]
fn bucket_holds_no_more_than_its_capacity() {
    let (clock, mut limiter) = limiter(4, 1000);
    assert_eq!(limiter.allow("a", 4), Ok(0));
    clock.0.set(u64::MAX);
    assert_eq!(limiter.allow("a", 1), Ok(3));
    let (clock, mut limiter) = self::limiter(u32::MAX, u32::MAX);
    assert_eq!(limiter.allow("a", u32::MAX), Ok(0));
    clock.0.set(u64::MAX);
    assert_eq!(limiter.allow("a", 1), Ok(u32::MAX - 1));
}

#[test]
fn too_large_requests_never_pass() {
    let (_, mut limiter) = limiter(4, 1);
    assert_eq!(limiter.allow("a", 5), Err(Refused::TooLarge));
    assert_eq!(limiter.clients(), 0);
    assert_eq!(limiter.allow("a", 4), Ok(0));
    assert_eq!(limiter.allow("a", 5), Err(Refused::TooLarge));
}

#[test]
fn clock_that_goes_back_stands_still() {
    let (clock, mut limiter) = limiter(5, 1);
    assert_eq!(limiter.allow("a", 5), Ok(0));
    clock.0.set(2000);
    assert!(matches!(limiter.allow("a", 1), Err(Refused::After(_))));
    clock.0.set(5500);
    assert_eq!(limiter.allow("a", 1), Err(Refused::After(500)));
    clock.0.set(6000);
    assert_eq!(limiter.allow("a", 1), Ok(0));
}

#[test]
fn full_buckets_are_forgotten() {
    let (clock, mut limiter) = limiter(2, 1);
    assert_eq!((limiter.allow("a", 1), limiter.allow("b", 2), limiter.allow("c", 0)), (Ok(1), Ok(0), Ok(2)));
    assert_eq!((limiter.forget_full(), limiter.clients()), (1, 2));
    clock.0.set(6999);
    assert_eq!((limiter.forget_full(), limiter.clients()), (1, 1));
    clock.0.set(7000);
    assert_eq!((limiter.forget_full(), limiter.clients(), limiter.forget_full()), (1, 0, 0));
}
