use answer::*;

fn pushed(capacity: usize, samples: std::ops::RangeInclusive<u32>) -> Recent {
    let mut recent = Recent::new(capacity);
    for sample in samples {
        recent.push(sample);
    }
    recent
}

#[test]
fn empty_buffer_has_no_newest() {
    let recent = Recent::new(4);
    assert_eq!(recent.values(), Vec::<u32>::new());
    assert_eq!(recent.newest(), None);
}

#[test]
fn samples_before_the_end_are_kept() {
    let recent = pushed(4, 1..=3);
    assert_eq!(recent.values(), [1, 2, 3]);
    assert_eq!(recent.newest(), Some(3));
}

#[test]
fn full_buffer_is_in_order() {
    assert_eq!(pushed(4, 1..=4).values(), [1, 2, 3, 4]);
}

#[test]
fn oldest_sample_is_replaced() {
    let recent = pushed(4, 1..=6);
    assert_eq!(recent.values(), [3, 4, 5, 6]);
    assert_eq!(recent.newest(), Some(6));
}

#[test]
fn many_rounds_stay_in_order() {
    for last in 1..=50 {
        let recent = pushed(7, 1..=last);
        let first = last.saturating_sub(6).max(1);
        assert_eq!(recent.values(), (first..=last).collect::<Vec<_>>());
        assert_eq!(recent.newest(), Some(last));
    }
}

#[test]
fn one_slot_has_the_last() {
    let recent = pushed(1, 1..=9);
    assert_eq!((recent.values(), recent.newest()), (vec![9], Some(9)));
}

#[test]
fn no_slot_keeps_nothing() {
    let recent = pushed(0, 1..=3);
    assert_eq!((recent.values(), recent.newest()), (vec![], None));
}
