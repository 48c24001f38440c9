use answer::*;

#[test]
fn example_is_as_shown() {
    let wanted = ["00000010: 47 47 55 46 03 00 00 00  |GGUF....|", "00000018: 74 65 6e 73 6f 72        |tensor|"];
    assert_eq!(dump(b"GGUF\x03\0\0\0tensor", 0x10), wanted);
}

#[test]
fn no_bytes_have_no_line() {
    assert!(dump(b"", 7).is_empty());
}

#[test]
fn full_lines_have_no_padding() {
    let lines = dump(b"0123456789abcdef", 0);
    assert_eq!(lines, ["00000000: 30 31 32 33 34 35 36 37  |01234567|", "00000008: 38 39 61 62 63 64 65 66  |89abcdef|"]);
}

#[test]
fn one_byte_is_padded() {
    assert_eq!(dump(b"\n", 0), ["00000000: 0a                       |.|"]);
}

#[test]
fn printable_range_has_its_ends() {
    assert_eq!(dump(&[0x1f, 0x20, 0x7e, 0x7f, 0x80, 0xe9, 0xff], 0), ["00000000: 1f 20 7e 7f 80 e9 ff     |. ~....|"]);
}

#[test]
fn offsets_are_lower_case() {
    assert_eq!(dump(b"|", 0x00AB_CDEF), ["00abcdef: 7c                       |||"]);
    assert_eq!(dump(b"z", u32::MAX), ["ffffffff: 7a                       |z|"]);
}
