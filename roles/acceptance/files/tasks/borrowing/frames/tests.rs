use answer::*;

fn last_payload(buffer: &[u8]) -> Option<&[u8]> {
    let frames = Frames::new(buffer);
    frames.last()
}

fn unread(buffer: &[u8]) -> &[u8] {
    let mut frames = Frames::new(buffer);
    while frames.next().is_some() {}
    frames.rest()
}

#[test]
fn frames_are_split() {
    let seen: Vec<&[u8]> = Frames::new(&[2, 10, 11, 1, 12]).collect();
    assert_eq!(seen, [&[10, 11][..], &[12]]);
}

#[test]
fn empty_frames_count() {
    let seen: Vec<&[u8]> = Frames::new(&[0, 1, 5, 0]).collect();
    assert_eq!(seen, [&[][..], &[5], &[]]);
    assert_eq!(Frames::new(&[]).count(), 0);
}

#[test]
fn incomplete_frame_stays_in_the_rest() {
    let buffer = [1, 9, 3, 1, 2];
    let mut frames = Frames::new(&buffer);
    assert_eq!(frames.rest(), buffer);
    assert_eq!(frames.next(), Some(&[9][..]));
    assert_eq!(frames.next(), None);
    assert_eq!(frames.next(), None);
    assert_eq!(frames.rest(), [3, 1, 2]);
    assert_eq!(unread(&[1]), [1]);
}

#[test]
fn longest_frame_is_read() {
    let mut buffer = vec![255];
    buffer.extend([7; 255]);
    assert_eq!(Frames::new(&buffer).next().map(<[u8]>::len), Some(255));
    assert_eq!(unread(&buffer).len(), 0);
    buffer.pop();
    assert_eq!(Frames::new(&buffer).next(), None);
    assert_eq!(unread(&buffer).len(), 255);
}

#[test]
fn payloads_outlive_the_iterator() {
    let buffer = vec![1, 1, 2, 3, 4, 9];
    assert_eq!(last_payload(&buffer), Some(&[3, 4][..]));
    assert_eq!(unread(&buffer).as_ptr(), buffer[5..].as_ptr());
}
