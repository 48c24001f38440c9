use answer::*;
use std::collections::VecDeque;

fn queues(ids: &[&[u32]]) -> Vec<VecDeque<Job>> {
    ids.iter().map(|queue| queue.iter().map(|&id| Job { id }).collect()).collect()
}

#[test]
fn later_queue_takes_from_an_earlier_one() {
    let mut seen = queues(&[&[1, 2, 3, 4], &[], &[9]]);
    assert_eq!(steal(&mut seen, 0, 2), 2);
    assert_eq!(seen, queues(&[&[1, 2], &[], &[9, 3, 4]]));
}

#[test]
fn earlier_queue_takes_from_a_later_one() {
    let mut seen = queues(&[&[7], &[1, 2, 3, 4, 5, 6]]);
    assert_eq!(steal(&mut seen, 1, 0), 3);
    assert_eq!(seen, queues(&[&[7, 4, 5, 6], &[1, 2, 3]]));
}

#[test]
fn half_is_rounded_down() {
    let mut seen = queues(&[&[1, 2, 3], &[]]);
    assert_eq!(steal(&mut seen, 0, 1), 1);
    assert_eq!(seen, queues(&[&[1, 2], &[3]]));
    let mut seen = queues(&[&[1], &[]]);
    assert_eq!(steal(&mut seen, 0, 1), 0);
    assert_eq!(seen, queues(&[&[1], &[]]));
}

#[test]
fn empty_queue_gives_nothing() {
    let mut seen = queues(&[&[], &[5]]);
    assert_eq!(steal(&mut seen, 0, 1), 0);
    assert_eq!(seen, queues(&[&[], &[5]]));
}

#[test]
fn queue_does_not_take_from_itself() {
    let mut seen = queues(&[&[1, 2, 3, 4]]);
    assert_eq!(steal(&mut seen, 0, 0), 0);
    assert_eq!(seen, queues(&[&[1, 2, 3, 4]]));
}

#[test]
fn unknown_queues_change_nothing() {
    let mut seen = queues(&[&[1, 2], &[3, 4]]);
    for (from, to) in [(0, 2), (2, 0), (5, 6), (2, 2), (0, usize::MAX)] {
        assert_eq!(steal(&mut seen, from, to), 0);
    }
    assert_eq!(steal(&mut [], 0, 1), 0);
    assert_eq!(seen, queues(&[&[1, 2], &[3, 4]]));
}
