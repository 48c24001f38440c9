use answer::*;
use std::collections::HashSet;

const BYTES: [u8; 6] = [0x02, 0x42, 0xac, 0x11, 0x00, 0xfe];

fn refused(text: &str) -> bool {
    text.parse::<Mac>().is_err()
}

#[test]
fn texts_are_parsed() {
    assert_eq!("02:42:ac:11:00:fe".parse(), Ok(Mac::from(BYTES)));
    assert_eq!("02-42-AC-11-00-Fe".parse(), Ok(Mac::from(BYTES)));
}

#[test]
fn separators_are_not_mixed() {
    for text in ["02:42:ac:11:00-fe", "02-42:ac:11:00:fe", "02.42.ac.11.00.fe", "0242ac1100fe", "02:42:ac:11:00:fe:"] {
        assert!(refused(text), "{:?}", text);
    }
}

#[test]
fn digits_are_hexadecimal() {
    for text in ["02:42:ac:11:00:fg", "+2:42:ac:11:00:fe", "02:42:ac:11:00: e", "2:42:ac:11:00:fe", "2:042:ac:11:00:fe"] {
        assert!(refused(text), "{:?}", text);
    }
}

#[test]
fn other_texts_are_refused() {
    for text in ["", "02", ":::::::::::::::::", "é:é:é:é:é:é", "02:42:ac:11:00é", "02:42:ac:11:00:fe\n"] {
        assert!(refused(text), "{:?}", text);
    }
}

#[test]
fn shown_addresses_come_back() {
    let mac = Mac::from(BYTES);
    assert_eq!(mac.to_string(), "02:42:ac:11:00:fe");
    assert_eq!(mac.to_string().parse(), Ok(mac));
    assert_eq!(<[u8; 6]>::from(mac), BYTES);
}

#[test]
fn broadcast_is_multicast() {
    const MULTICAST: bool = Mac::BROADCAST.is_multicast();
    assert!(MULTICAST && Mac::from([1, 0, 0, 0, 0, 0]).is_multicast());
    assert!(!Mac::from(BYTES).is_multicast());
    assert_eq!(Mac::BROADCAST.to_string(), "ff:ff:ff:ff:ff:ff");
}

#[test]
fn addresses_are_ordered_and_hashed() {
    let mut macs = vec![Mac::BROADCAST, Mac::from([0, 1, 0, 0, 0, 0]), Mac::from(BYTES), Mac::from([0; 6])];
    macs.sort();
    assert_eq!(macs, [Mac::from([0; 6]), Mac::from([0, 1, 0, 0, 0, 0]), Mac::from(BYTES), Mac::BROADCAST]);
    assert_eq!(macs.iter().copied().chain(macs.iter().copied()).collect::<HashSet<Mac>>().len(), 4);
}

#[test]
fn error_has_a_text() {
    let error: Box<dyn std::error::Error> = Box::new("x".parse::<Mac>().unwrap_err());
    assert_eq!(error.to_string(), "not a hardware address");
    assert_eq!("x".parse::<Mac>(), "y".parse::<Mac>());
}
