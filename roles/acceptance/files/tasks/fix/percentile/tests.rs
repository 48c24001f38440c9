use answer::*;

#[test]
fn nearest_rank_is_rounded_up() {
    let samples = [15.0, 20.0, 35.0, 40.0, 50.0];
    let found: Vec<_> = [5, 20, 21, 40, 50, 99].iter().map(|&percent| percentile(&samples, percent).unwrap()).collect();
    assert_eq!(found, [15.0, 15.0, 20.0, 20.0, 35.0, 50.0]);
}

#[test]
fn ends_are_least_and_greatest() {
    let samples = [3.5, -1.0, 2.0];
    assert_eq!(percentile(&samples, 0), Some(-1.0));
    assert_eq!(percentile(&samples, 100), Some(3.5));
}

#[test]
fn samples_need_no_order() {
    let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
    for percent in 1..=100 {
        assert_eq!(percentile(&samples, percent), Some(f64::from(percent)));
    }
    assert_eq!(samples[0], 100.0);
}

#[test]
fn one_sample_is_every_percentile() {
    assert_eq!((percentile(&[7.0], 0), percentile(&[7.0], 1), percentile(&[7.0], 100)), (Some(7.0), Some(7.0), Some(7.0)));
}

#[test]
fn nan_does_not_count() {
    let samples = [f64::NAN, 4.0, f64::NAN, 2.0, -f64::NAN];
    assert_eq!(percentile(&samples, 50), Some(2.0));
    assert_eq!(percentile(&samples, 51), Some(4.0));
}

#[test]
fn infinite_samples_count() {
    let samples = [f64::INFINITY, 1.0, f64::NEG_INFINITY];
    assert_eq!(percentile(&samples, 100), Some(f64::INFINITY));
    assert_eq!(percentile(&samples, 0), Some(f64::NEG_INFINITY));
}

#[test]
fn nothing_has_no_percentile() {
    assert_eq!(percentile(&[], 50), None);
    assert_eq!(percentile(&[f64::NAN], 50), None);
    assert_eq!(percentile(&[1.0], 101), None);
}
