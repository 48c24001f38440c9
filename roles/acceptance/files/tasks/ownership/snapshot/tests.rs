use answer::*;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[derive(Debug, PartialEq)]
struct Config(u32);

#[test]
fn loads_return_the_same_allocation() {
    let shared = Shared::new(Config(1));
    assert!(Arc::ptr_eq(&shared.load(), &shared.load()));
    assert_eq!(*shared.load(), Config(1));
}

#[test]
fn store_returns_the_one_before() {
    let shared = Shared::new(Config(1));
    let first = shared.load();
    assert!(Arc::ptr_eq(&shared.store(Config(2)), &first));
    assert_eq!(*shared.store(Config(3)), Config(2));
    assert_eq!((&*first, &*shared.load()), (&Config(1), &Config(3)));
}

#[test]
fn update_returns_the_new_one() {
    let shared = Shared::new(Config(1));
    let new = shared.update(|old| Config(old.0 + 10));
    assert_eq!(*new, Config(11));
    assert!(Arc::ptr_eq(&new, &shared.load()));
}

#[test]
fn only_the_current_value_is_held() {
    let shared = Shared::new(Config(1));
    let first = shared.load();
    assert_eq!(Arc::strong_count(&first), 2);
    shared.update(|_| Config(2));
    assert_eq!(Arc::strong_count(&first), 1);
    let second = shared.load();
    drop(shared);
    assert_eq!((&*second, Arc::strong_count(&second)), (&Config(2), 1));
}

#[test]
fn no_update_is_lost() {
    let shared = Arc::new(Shared::new(Config(0)));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..10 {
                    shared.update(|old| {
                        thread::sleep(Duration::from_micros(200));
                        Config(old.0 + 1)
                    });
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*shared.load(), Config(40));
}

#[test]
fn panic_in_an_update_changes_nothing() {
    let shared = Shared::new(Config(1));
    let ended = catch_unwind(AssertUnwindSafe(|| shared.update(|_| panic!("the file is damaged"))));
    assert!(ended.is_err());
    assert_eq!(*shared.load(), Config(1));
    assert_eq!(*shared.update(|old| Config(old.0 + 1)), Config(2));
    assert_eq!(*shared.store(Config(5)), Config(2));
    assert_eq!(*shared.load(), Config(5));
}
