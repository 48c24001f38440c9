use answer::*;

#[test]
fn doubles_one() {
    assert_eq!(double(1), 2);
}

#[test]
fn doubles_seven() {
    let pair = vec![7, 14];
    assert_eq!(double(pair[0]), pair[1]);
}

#[test]
#[should_panic]
fn panics_at_overflow() {
    double(u32::MAX);
}
