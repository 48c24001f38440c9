use answer::*;

fn set(cpus: &[u16]) -> CpuSet {
    cpus.iter().copied().collect()
}

#[test]
fn default_is_empty() {
    let cpus = CpuSet::default();
    assert!(cpus.is_empty() && !cpus.contains(0));
    assert_eq!((cpus.len(), cpus.to_string(), cpus.iter().next()), (0, String::new(), None));
}

#[test]
fn processors_are_added_once() {
    let mut cpus = CpuSet::default();
    assert!(cpus.add(3) && cpus.add(65535) && !cpus.add(3));
    assert!(cpus.contains(3) && cpus.contains(65535) && !cpus.contains(4));
    assert_eq!((cpus.len(), cpus.is_empty()), (2, false));
}

#[test]
fn iteration_is_ascending() {
    assert_eq!(set(&[9, 1, 300, 1, 0]).iter().collect::<Vec<u16>>(), [0, 1, 9, 300]);
}

#[test]
fn runs_are_shown_as_ranges() {
    assert_eq!(set(&[8, 0, 1, 2, 3]).to_string(), "0-3,8");
    assert_eq!(set(&[4, 5]).to_string(), "4-5");
    assert_eq!(set(&[1, 3, 5]).to_string(), "1,3,5");
    assert_eq!(format!("{}", set(&[7])), "7");
}

#[test]
fn highest_number_ends_a_run() {
    assert_eq!(set(&[65535, 65534, 0]).to_string(), "0,65534-65535");
    assert_eq!((0..=65535).collect::<CpuSet>().to_string(), "0-65535");
}

#[test]
fn sets_are_extended() {
    let mut cpus = set(&[1]);
    cpus.extend([2, 1, 0]);
    cpus.extend(Some(9));
    assert_eq!(cpus, set(&[0, 1, 2, 9]));
    assert_ne!(cpus, set(&[0, 1, 2]));
}

#[test]
fn common_processors_are_kept() {
    let (left, right) = (set(&[0, 1, 2, 3]), set(&[2, 3, 4]));
    assert_eq!(&left & &right, set(&[2, 3]));
    assert!((&left & &CpuSet::default()).is_empty());
    assert_eq!((left.len(), right.len()), (4, 3));
}
