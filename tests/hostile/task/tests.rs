use answer::*;

#[test]
fn doubles_one() {
    assert_eq!(double(1), 2);
}

#[test]
fn doubles_seven() {
    assert_eq!(double(7), 14);
}

#[test]
#[should_panic]
fn panics_at_overflow() {
    double(u32::MAX);
}
