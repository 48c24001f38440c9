use answer::*;
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;

type Log = Rc<RefCell<Vec<String>>>;

struct Noisy(Log, &'static str);

impl Drop for Noisy {
    fn drop(&mut self) {
        self.0.borrow_mut().push(format!("drop {}", self.1));
    }
}

fn filled(log: &Log, names: &[&'static str]) -> Cleanup {
    let mut cleanup = Cleanup::new();
    for &name in names {
        let log = Rc::clone(log);
        cleanup.push(move || log.borrow_mut().push(name.to_string()));
    }
    cleanup
}

#[test]
fn drop_calls_in_reverse_order() {
    let log = Log::default();
    {
        let cleanup = filled(&log, &["mkdir", "mount", "start"]);
        assert_eq!((cleanup.len(), cleanup.is_empty()), (3, false));
        assert!(log.borrow().is_empty());
    }
    assert_eq!(*log.borrow(), ["start", "mount", "mkdir"]);
}

#[test]
fn run_calls_each_action_once() {
    let log = Log::default();
    filled(&log, &["a", "b"]).run();
    assert_eq!(*log.borrow(), ["b", "a"]);
}

#[test]
fn disarmed_actions_are_dropped_and_not_called() {
    let log = Log::default();
    filled(&log, &["a", "b"]).disarm();
    assert!(log.borrow().is_empty());
    assert_eq!(Rc::strong_count(&log), 1);
}

#[test]
fn panic_calls_the_actions() {
    let log = Log::default();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _cleanup = filled(&log, &["a", "b"]);
        panic!("step 3 failed");
    }));
    assert!(ended.is_err());
    assert_eq!(*log.borrow(), ["b", "a"]);
}

#[test]
fn closures_are_dropped_one_by_one() {
    let log = Log::default();
    let mut cleanup = Cleanup::new();
    for name in ["x", "y"] {
        let (noisy, log) = (Noisy(Rc::clone(&log), name), Rc::clone(&log));
        cleanup.push(move || {
            let noisy = noisy;
            log.borrow_mut().push(format!("call {}", noisy.1));
        });
    }
    cleanup.run();
    assert_eq!(*log.borrow(), ["call y", "drop y", "call x", "drop x"]);
}

#[test]
fn empty_cleanup_does_nothing() {
    let cleanup = Cleanup::new();
    assert_eq!((cleanup.len(), cleanup.is_empty()), (0, true));
    cleanup.run();
    Cleanup::new().disarm();
}
