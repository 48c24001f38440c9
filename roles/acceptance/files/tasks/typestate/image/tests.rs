use answer::*;

fn image(bytes: &[u8]) -> Image<Unverified> {
    Image::<Unverified>::new(bytes.to_vec())
}

#[test]
fn verified_image_boots() {
    let verified = image(b"abcde").verify(0xC8F0).ok().unwrap();
    assert_eq!(boot(&verified), "booting 5 bytes");
    assert_eq!(verified.bytes(), b"abcde");
}

#[test]
fn known_checksums_are_found() {
    for (bytes, sum) in [(&b""[..], 0), (b"abcdef", 0x2057), (b"abcdefgh", 0x0627), (&[255; 9], 0), (&[1, 0], 0x0201)] {
        assert!(image(bytes).verify(sum).is_ok(), "{bytes:?}");
    }
}

#[test]
fn mismatch_gives_the_bytes_back() {
    let bytes = b"abcde".to_vec();
    let address = bytes.as_ptr();
    let mismatch = Image::<Unverified>::new(bytes).verify(0xC8F1).err().unwrap();
    assert_eq!(mismatch.bytes.as_ptr(), address);
    assert_eq!(mismatch, Mismatch { expected: 0xC8F1, found: 0xC8F0, bytes: b"abcde".to_vec() });
}

#[test]
fn order_of_bytes_counts() {
    assert!(image(b"abcde").verify(0xC8F0).is_ok());
    assert!(image(b"edcba").verify(0xC8F0).is_err());
}

#[test]
fn patched_image_is_verified_anew() {
    let patched = image(b"abcde").verify(0xC8F0).ok().unwrap().patch(4, b'f');
    assert_eq!(patched.bytes(), b"abcdf");
    assert!(patched.verify(0xC9F1).is_ok());
}

#[test]
fn patch_outside_changes_no_byte() {
    for at in [5, usize::MAX] {
        let patched = image(b"abcde").verify(0xC8F0).ok().unwrap().patch(at, 0);
        assert_eq!(patched.bytes(), b"abcde");
        assert!(patched.verify(0xC8F0).is_ok());
    }
}
