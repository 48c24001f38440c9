use answer::*;

const HEADER: [u8; 20] = [
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
];

#[test]
fn words_are_summed() {
    assert_eq!(checksum(&[0x12, 0x34]), !0x1234);
    assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
}

#[test]
fn nothing_has_the_complement_of_zero() {
    assert_eq!(checksum(&[]), 0xffff);
}

#[test]
fn odd_byte_is_a_high_byte() {
    assert_eq!(checksum(&[0xab]), !0xab00);
    assert_eq!(checksum(&[0x00, 0x01, 0xff]), !0xff01);
}

#[test]
fn carries_come_back() {
    assert_eq!(checksum(&[0xff, 0xff, 0x00, 0x01]), !0x0001);
    assert_eq!(checksum(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), 0);
    assert_eq!(checksum(&[0x80, 0x00, 0x80, 0x00]), !0x0001);
}

#[test]
fn long_data_does_not_overflow() {
    assert_eq!(checksum(&vec![0xff; 400_000]), 0);
    let mut data = vec![0xff; 400_000];
    data.push(0x01);
    assert_eq!(checksum(&data), !0x0100);
}

#[test]
fn header_is_sealed() {
    assert!(is_sealed(&HEADER));
    let mut header = HEADER;
    header[11] = 0x17;
    assert!(!is_sealed(&header));
    assert_eq!(seal(&mut header, 10), Some(0xb861));
    assert_eq!(header, HEADER);
}

#[test]
fn seal_needs_two_bytes() {
    let mut data = [1, 2, 3];
    for offset in [2, 3, 4, usize::MAX, usize::MAX - 1] {
        assert_eq!(seal(&mut data, offset), None, "{}", offset);
    }
    assert_eq!(data, [1, 2, 3]);
    assert_eq!(seal(&mut data, 1), Some(!0x0100));
    assert_eq!(data, [1, 0xfe, 0xff]);
    assert_eq!(seal(&mut [], 0), None);
}
