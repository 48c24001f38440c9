use answer::*;

fn complete(name: &str, parts: &[&[u8]]) -> Upload<Complete> {
    let mut upload = Upload::<Receiving>::begin(name, parts.iter().map(|part| part.len()).sum());
    for part in parts {
        upload.write(part).unwrap();
    }
    upload.finish().ok().unwrap()
}

#[test]
fn parts_are_joined() {
    let upload = complete("model.gguf", &[b"GG", b"", b"UF"]);
    assert_eq!((upload.name(), upload.checksum()), ("model.gguf", 71 + 71 + 85 + 70));
    assert_eq!(upload.publish(), ("model.gguf".to_string(), b"GGUF".to_vec()));
}

#[test]
fn unfinished_upload_goes_on() {
    let mut upload = Upload::<Receiving>::begin("a", 3);
    upload.write(&[1, 2]).unwrap();
    assert_eq!(upload.missing(), 1);
    let mut upload = upload.finish().err().unwrap();
    assert_eq!((upload.name(), upload.missing()), ("a", 1));
    upload.write(&[3]).unwrap();
    assert_eq!(upload.missing(), 0);
    assert_eq!(upload.finish().ok().unwrap().publish().1, [1, 2, 3]);
}

#[test]
fn bytes_beyond_the_size_are_refused() {
    let mut upload = Upload::<Receiving>::begin("a", 3);
    upload.write(&[1, 2]).unwrap();
    assert_eq!(upload.write(&[3, 4, 5, 6]), Err(3));
    assert_eq!(upload.missing(), 1);
    assert_eq!(upload.write(&[9]), Ok(()));
    assert_eq!(upload.write(&[9]), Err(1));
    assert_eq!(upload.finish().ok().unwrap().publish().1, [1, 2, 9]);
}

#[test]
fn empty_file_is_complete() {
    let mut upload = Upload::<Receiving>::begin("empty", 0);
    assert_eq!((upload.missing(), upload.write(&[])), (0, Ok(())));
    assert_eq!(upload.write(&[1]), Err(1));
    assert_eq!(upload.finish().ok().unwrap().checksum(), 0);
}

#[test]
fn checksum_adds_bytes() {
    let part = vec![255; 1000];
    assert_eq!(complete("a", &[&part, &part]).checksum(), 510_000);
}
