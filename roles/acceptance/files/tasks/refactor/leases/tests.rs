use answer::*;
use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Default)]
struct Fake(Rc<Cell<u64>>);

impl Clock for Fake {
    fn now_ms(&self) -> u64 {
        self.0.get()
    }
}

fn leases(ttl_ms: u64) -> (Leases<Fake>, Fake) {
    let fake = Fake::default();
    fake.0.set(5_000);
    (Leases::new(ttl_ms, fake.clone()), fake)
}

#[test]
fn lease_has_one_holder() {
    let (mut leases, _) = leases(100);
    assert_eq!(leases.holder("a"), None);
    assert!(leases.acquire("a", "n1") && !leases.acquire("a", "n2") && leases.acquire("b", "n2"));
    assert_eq!((leases.holder("a"), leases.holder("b")), (Some("n1"), Some("n2")));
}

#[test]
fn lease_ends_after_its_time() {
    let (mut leases, fake) = leases(100);
    leases.acquire("a", "n1");
    fake.0.set(5_099);
    assert!(!leases.acquire("a", "n2"));
    fake.0.set(5_100);
    assert_eq!(leases.holder("a"), None);
    assert!(leases.acquire("a", "n2"));
}

#[test]
fn holder_renews_it() {
    let (mut leases, fake) = leases(100);
    leases.acquire("a", "n1");
    fake.0.set(5_060);
    assert!(leases.acquire("a", "n1"));
    fake.0.set(5_159);
    assert!(!leases.acquire("a", "n2"));
    assert_eq!(leases.holder("a"), Some("n1"));
    fake.0.set(5_160);
    assert_eq!(leases.holder("a"), None);
}

#[test]
fn only_the_holder_releases() {
    let (mut leases, fake) = leases(100);
    leases.acquire("a", "n1");
    assert!(!leases.release("a", "n2") && !leases.release("b", "n1"));
    assert!(leases.release("a", "n1") && !leases.release("a", "n1"));
    leases.acquire("a", "n2");
    fake.0.set(5_100);
    assert!(!leases.release("a", "n2"));
}

#[test]
fn sweep_counts_ended_leases() {
    let (mut leases, fake) = leases(100);
    leases.acquire("a", "n1");
    leases.acquire("b", "n1");
    fake.0.set(5_050);
    leases.acquire("b", "n1");
    leases.acquire("c", "n2");
    assert_eq!(leases.sweep(), 0);
    fake.0.set(5_100);
    assert_eq!((leases.sweep(), leases.sweep()), (1, 0));
    assert_eq!((leases.holder("b"), leases.holder("c")), (Some("n1"), Some("n2")));
    fake.0.set(9_000);
    assert_eq!(leases.sweep(), 2);
}

#[test]
fn no_time_is_no_lease() {
    let (mut leases, _) = leases(0);
    assert!(leases.acquire("a", "n1") && leases.acquire("a", "n2"));
    assert_eq!(leases.holder("a"), None);
    assert_eq!(leases.sweep(), 1);
}

#[test]
fn longest_lease_does_not_overflow() {
    let (mut leases, fake) = leases(u64::MAX);
    leases.acquire("a", "n1");
    fake.0.set(u64::MAX);
    assert_eq!(leases.holder("a"), Some("n1"));
    assert_eq!(leases.clock().now_ms(), u64::MAX);
}
