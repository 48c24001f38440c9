use answer::*;

fn regions(pairs: &[(u64, u64)]) -> Vec<Region> {
    pairs.iter().map(|&(start, length)| Region::new(start, length)).collect()
}

#[test]
fn region_is_split() {
    let (first, second) = Region::new(100, 10).split(3).unwrap();
    assert_eq!((first.start(), first.length()), (100, 3));
    assert_eq!((second.start(), second.length()), (103, 7));
}

#[test]
fn failed_split_gives_the_region_back() {
    for blocks in [0, 10, 11, u64::MAX] {
        assert_eq!(Region::new(100, 10).split(blocks), Err(Region::new(100, 10)));
    }
}

#[test]
fn neighbours_are_joined_in_either_order() {
    assert_eq!(Region::new(5, 5).join(Region::new(10, 1)), Ok(Region::new(5, 6)));
    assert_eq!(Region::new(10, 1).join(Region::new(5, 5)), Ok(Region::new(5, 6)));
}

#[test]
fn failed_join_gives_both_back() {
    for (start, length) in [(11, 1), (9, 1), (5, 5), (0, 4)] {
        let both = (Region::new(5, 5), Region::new(start, length));
        assert_eq!(Region::new(5, 5).join(Region::new(start, length)), Err(both));
    }
}

#[test]
fn shortest_region_that_fits_is_used() {
    let mut free = regions(&[(0, 100), (200, 8), (300, 6), (400, 6)]);
    assert_eq!(allocate(&mut free, 5), Some(Region::new(300, 5)));
    assert_eq!(free, regions(&[(0, 100), (200, 8), (305, 1), (400, 6)]));
    assert_eq!(allocate(&mut free, 8), Some(Region::new(200, 8)));
    assert_eq!(free, regions(&[(0, 100), (305, 1), (400, 6)]));
}

#[test]
fn nothing_fits() {
    let mut free = regions(&[(0, 4), (10, 5)]);
    assert_eq!(allocate(&mut free, 6), None);
    assert_eq!(allocate(&mut free, 0), None);
    assert_eq!(free, regions(&[(0, 4), (10, 5)]));
    assert_eq!(allocate(&mut Vec::new(), 1), None);
}

#[test]
fn empty_and_endless_regions_panic() {
    for (start, length) in [(7, 0), (u64::MAX, 2), (2, u64::MAX)] {
        assert!(std::panic::catch_unwind(|| Region::new(start, length)).is_err());
    }
    assert_eq!(Region::new(u64::MAX - 1, 1).start(), u64::MAX - 1);
}
