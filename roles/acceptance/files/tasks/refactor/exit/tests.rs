use answer::*;

fn signal(number: u8, core: bool) -> Exit {
    Exit::Signal { number, core }
}

#[test]
fn raw_status_is_decoded() {
    assert_eq!(Exit::from_raw(0), Exit::Code(0));
    assert_eq!(Exit::from_raw(0xff00), Exit::Code(255));
    assert_eq!(Exit::from_raw(9), signal(9, false));
    assert_eq!(Exit::from_raw(0x80 | 11), signal(11, true));
}

#[test]
fn code_with_core_bit_is_a_code() {
    assert_eq!(Exit::from_raw(0x0380), Exit::Code(3));
    assert_eq!(Exit::from_raw(0x0109), signal(9, false));
}

#[test]
fn texts_are_the_old_ones() {
    assert_eq!(Exit::Code(3).to_string(), "exited with 3");
    assert_eq!(signal(9, false).to_string(), "killed by signal 9");
    assert_eq!(format!("{}", signal(11, true)), "killed by signal 11 (core dumped)");
}

#[test]
fn policies_have_names() {
    assert_eq!("no".parse(), Ok(Policy::Never));
    assert_eq!("on-failure".parse(), Ok(Policy::OnFailure));
    assert_eq!("always".parse(), Ok(Policy::Always));
    for other in ["Always", "never", "on_failure", " no"] {
        assert!(other.parse::<Policy>().unwrap_err().contains(other), "{:?}", other);
    }
}

#[test]
fn failures_restart() {
    assert!(!Policy::OnFailure.restarts(Exit::Code(0)));
    assert!(Policy::OnFailure.restarts(Exit::Code(1)));
    assert!(Policy::OnFailure.restarts(signal(9, false)));
}

#[test]
fn orderly_signals_do_not_restart() {
    for number in [1, 2, 13, 15] {
        assert!(!Policy::OnFailure.restarts(signal(number, false)), "{}", number);
        assert!(Policy::OnFailure.restarts(signal(number, true)), "{}", number);
    }
}

#[test]
fn other_policies_do_not_look() {
    for exit in [Exit::Code(0), Exit::Code(1), signal(15, false), signal(6, true)] {
        assert!(Policy::Always.restarts(exit));
        assert!(!Policy::Never.restarts(exit));
    }
}
