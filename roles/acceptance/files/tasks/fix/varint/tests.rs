use answer::*;

#[test]
fn one_byte_is_read() {
    assert_eq!(decode(&[0x00]), Some((0, 1)));
    assert_eq!(decode(&[0x7f]), Some((127, 1)));
}

#[test]
fn following_bytes_are_ignored() {
    assert_eq!(decode(&[0xac, 0x02, 0xff, 0xff]), Some((300, 2)));
}

#[test]
fn long_encoding_is_accepted() {
    assert_eq!(decode(&[0x85, 0x00]), Some((5, 2)));
    assert_eq!(decode(&[0x80, 0x80, 0x80, 0x00]), Some((0, 4)));
}

#[test]
fn cut_off_number_is_refused() {
    assert_eq!(decode(&[]), None);
    assert_eq!(decode(&[0x80]), None);
    assert_eq!(decode(&[0xff; 9]), None);
}

#[test]
fn largest_number_is_read() {
    let mut bytes = vec![0xff; 9];
    bytes.push(0x01);
    assert_eq!(decode(&bytes), Some((u64::MAX, 10)));
}

#[test]
fn too_large_number_is_refused() {
    let mut bytes = vec![0x80; 9];
    bytes.push(0x02);
    assert_eq!(decode(&bytes), None);
    assert_eq!(decode(&[0x80; 11]), None);
    let mut eleven = vec![0x80; 10];
    eleven.push(0x00);
    assert_eq!(decode(&eleven), None);
}

#[test]
fn encoded_numbers_come_back() {
    for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), 1 << 63, u64::MAX] {
        let bytes = encode(value);
        assert_eq!(decode(&bytes), Some((value, bytes.len())));
    }
}
