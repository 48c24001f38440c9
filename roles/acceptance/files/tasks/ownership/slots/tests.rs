use answer::*;
use std::sync::{Arc, Barrier};
use std::thread;

#[test]
fn dropped_slot_is_free_again() {
    let slots = Slots::new(2);
    let first = slots.take();
    let second = slots.take();
    assert!(first.is_some() && second.is_some() && slots.take().is_none());
    assert_eq!(slots.free(), 0);
    drop(first);
    assert_eq!(slots.free(), 1);
    assert!(slots.take().is_some());
    assert_eq!(slots.free(), 1);
}

#[test]
fn no_slots_at_all() {
    let slots = Slots::new(0);
    assert!(slots.take().is_none());
    assert_eq!(slots.free(), 0);
}

#[test]
fn retired_slot_never_returns() {
    let slots = Slots::new(2);
    slots.take().unwrap().retire();
    assert_eq!(slots.free(), 1);
    let last = slots.take().unwrap();
    assert!(slots.take().is_none());
    drop(last);
    assert_eq!(slots.free(), 1);
}

#[test]
fn slot_outlives_its_counter() {
    let slot = Slots::new(1).take().unwrap();
    thread::spawn(move || drop(slot)).join().unwrap();
}

#[test]
fn panic_gives_the_slot_back() {
    let slots = Arc::new(Slots::new(1));
    let shared = Arc::clone(&slots);
    let ended = thread::spawn(move || {
        let _slot = shared.take().unwrap();
        panic!("the request failed");
    });
    assert!(ended.join().is_err());
    assert_eq!(slots.free(), 1);
}

#[test]
fn threads_share_the_slots() {
    let slots = Arc::new(Slots::new(3));
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (slots, barrier) = (Arc::clone(&slots), Arc::clone(&barrier));
            thread::spawn(move || {
                barrier.wait();
                slots.take()
            })
        })
        .collect();
    let taken: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
    assert_eq!((taken.len(), slots.free()), (3, 0));
    drop(taken);
    assert_eq!(slots.free(), 3);
}
