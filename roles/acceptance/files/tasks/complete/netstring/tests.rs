use answer::*;

#[test]
fn frame_and_rest_are_returned() {
    assert_eq!(take(b"5:hello,3:you,", 100), Ok(Some((&b"hello"[..], &b"3:you,"[..]))));
    assert_eq!(take(b"12:hello,world!,", 12), Ok(Some((&b"hello,world!"[..], &b""[..]))));
}

#[test]
fn empty_payload_is_a_frame() {
    assert_eq!(take(b"0:,x", 0), Ok(Some((&b""[..], &b"x"[..]))));
}

#[test]
fn incomplete_frames_wait() {
    for input in ["", "0", "5", "5:", "5:hel", "5:hello", "12"] {
        assert_eq!(take(input.as_bytes(), 100), Ok(None), "{:?}", input);
    }
}

#[test]
fn broken_lengths_are_refused() {
    for input in [":", ":,", "x", "5x", "5 :hello,", "-1:", "+5:hello,", "00", "05:hello,"] {
        assert_eq!(take(input.as_bytes(), 100), Err(Error::Length), "{:?}", input);
    }
}

#[test]
fn long_frames_are_refused_early() {
    assert_eq!(take(b"101", 100), Err(Error::TooLong));
    assert_eq!(take(b"6:hello!,", 5), Err(Error::TooLong));
    assert_eq!(take(b"999x", 100), Err(Error::TooLong));
    assert_eq!(take(b"99999999999999999999999999999999999:", usize::MAX), Err(Error::TooLong));
}

#[test]
fn missing_comma_is_refused() {
    assert_eq!(take(b"5:hello;", 100), Err(Error::Comma));
    assert_eq!(take(b"0:0", 100), Err(Error::Comma));
}

#[test]
fn payload_may_have_any_bytes() {
    assert_eq!(take(b"4:\xff,\0:,", 100), Ok(Some((&b"\xff,\0:"[..], &b""[..]))));
}
