use answer::*;

#[test]
fn least_free_port_is_found() {
    assert_eq!(first_free(&[8001, 8000, 8003], 8000..=8010), Some(8002));
    assert_eq!(first_free(&[], 80..=90), Some(80));
    assert_eq!(first_free(&[80, 81], 80..=82), Some(82));
}

#[test]
fn full_range_has_no_port() {
    assert_eq!(first_free(&[80, 81, 81], 80..=81), None);
    assert_eq!(first_free(&[], 81..=80), None);
}

#[test]
fn highest_port_is_in_the_range() {
    assert_eq!(first_free(&[65534], 65534..=65535), Some(65535));
    assert_eq!(first_free(&[65534, 65535], 65534..=65535), None);
    assert_eq!(first_free(&[], 0..=65535), Some(0));
}

#[test]
fn extremes_are_least_and_greatest() {
    assert_eq!(extremes(&[3, -7, 12, 0]), Some((-7, 12)));
    assert_eq!(extremes(&[5]), Some((5, 5)));
    assert_eq!(extremes(&[i64::MAX, i64::MIN]), Some((i64::MIN, i64::MAX)));
    assert_eq!(extremes(&[]), None);
}

#[test]
fn longest_run_is_found() {
    assert_eq!(longest_up(&[true, false, true, true, false, true]), Some(2..4));
    assert_eq!(longest_up(&[false, true, false, true, true, true]), Some(3..6));
    assert_eq!(longest_up(&[true; 4]), Some(0..4));
}

#[test]
fn first_of_equal_runs_counts() {
    assert_eq!(longest_up(&[false, true, true, false, true, true]), Some(1..3));
    assert_eq!(longest_up(&[true, false, true]), Some(0..1));
}

#[test]
fn nothing_up_is_no_run() {
    assert_eq!(longest_up(&[]), None);
    assert_eq!(longest_up(&[false, false]), None);
}
