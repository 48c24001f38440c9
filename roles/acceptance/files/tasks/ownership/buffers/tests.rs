use answer::*;

fn filled(buffers: &Buffers, size: usize) -> (Buffer, *const u8) {
    let mut buffer = buffers.take();
    buffer.extend(vec![7; size]);
    let address = buffer.as_ptr();
    (buffer, address)
}

#[test]
fn dropped_buffer_is_used_again() {
    let buffers = Buffers::new(4);
    assert_eq!(buffers.idle(), 0);
    let (buffer, address) = filled(&buffers, 500);
    drop(buffer);
    assert_eq!(buffers.idle(), 1);
    let again = buffers.take();
    assert_eq!((again.as_ptr(), buffers.idle()), (address, 0));
    assert!(again.is_empty() && again.capacity() >= 500);
}

#[test]
fn last_idle_buffer_is_taken_first() {
    let buffers = Buffers::new(4);
    let (first, _) = filled(&buffers, 10);
    let (second, address) = filled(&buffers, 10);
    drop(first);
    drop(second);
    assert_eq!(buffers.take().as_ptr(), address);
    assert_eq!(buffers.idle(), 2);
}

#[test]
fn limit_of_idle_buffers_is_kept() {
    let buffers = Buffers::new(2);
    let taken: Vec<Buffer> = (0..5).map(|_| filled(&buffers, 1).0).collect();
    drop(taken);
    assert_eq!(buffers.idle(), 2);
    let unused = Buffers::new(0);
    drop(filled(&unused, 1));
    assert_eq!(unused.idle(), 0);
}

#[test]
fn bytes_are_given_away_without_a_copy() {
    let buffers = Buffers::new(4);
    let (buffer, address) = filled(&buffers, 300);
    let bytes = buffer.into_vec();
    assert_eq!((bytes.as_ptr(), bytes.len()), (address, 300));
    assert_eq!(buffers.idle(), 0);
    assert_ne!(filled(&buffers, 300).1, address);
}

#[test]
fn buffer_outlives_its_pool() {
    let (mut buffer, _) = filled(&Buffers::new(1), 3);
    buffer[0] = 1;
    assert_eq!(*buffer, [1, 7, 7]);
    drop(buffer);
}
