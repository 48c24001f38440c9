use answer::*;

#[test]
fn plain_numbers_are_bytes() {
    assert_eq!(parse_size("0"), Some(0));
    assert_eq!(parse_size("4096"), Some(4096));
    assert_eq!(parse_size("512 B"), Some(512));
}

#[test]
fn units_have_their_factors() {
    assert_eq!(parse_size("2kB"), Some(2_000));
    assert_eq!(parse_size("2KiB"), Some(2_048));
    assert_eq!(parse_size("3MB"), Some(3_000_000));
    assert_eq!(parse_size("3MiB"), Some(3 << 20));
    assert_eq!(parse_size("4GB"), Some(4_000_000_000));
    assert_eq!(parse_size("4GiB"), Some(4 << 30));
}

#[test]
fn spaces_are_ignored() {
    assert_eq!(parse_size("  16   MiB "), Some(16 << 20));
    assert_eq!(parse_size(" 7 "), Some(7));
}

#[test]
fn texts_without_digits_are_refused() {
    for text in ["", " ", "MiB", "B", "x", "ten kB"] {
        assert_eq!(parse_size(text), None, "{:?}", text);
    }
}

#[test]
fn signs_and_fractions_are_refused() {
    for text in ["+5", "-5", "+5 kB", "1.5 GB", "1e3", "1 000"] {
        assert_eq!(parse_size(text), None, "{:?}", text);
    }
}

#[test]
fn other_units_are_refused() {
    for text in ["1 KB", "1 mb", "1 TB", "1 kBB", "1 BB", "1 MiBs", "1 k"] {
        assert_eq!(parse_size(text), None, "{:?}", text);
    }
}

#[test]
fn too_large_sizes_are_refused() {
    assert_eq!(parse_size("18446744073709551615"), Some(u64::MAX));
    assert_eq!(parse_size("18446744073709551616"), None);
    assert_eq!(parse_size("17179869183 GiB"), Some(17_179_869_183 << 30));
    assert_eq!(parse_size("17179869184 GiB"), None);
    assert_eq!(parse_size("18446744074 GB"), None);
}
