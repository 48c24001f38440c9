use answer::*;

fn fed(monitor: &mut Monitor, samples: &[(&str, u64)]) -> usize {
    for (name, value) in samples {
        monitor.sample(name, *value);
    }
    monitor.check()
}

#[test]
fn value_above_the_limit_raises() {
    let mut monitor = Monitor::new(&[("disk", 90), ("swap", 0)]);
    assert_eq!(fed(&mut monitor, &[("disk", 91), ("swap", 1)]), 2);
    assert_eq!(monitor.alerts(), ["disk: 91 over 90", "swap: 1 over 0"]);
}

#[test]
fn value_at_the_limit_does_not_raise() {
    let mut monitor = Monitor::new(&[("disk", 90), ("swap", 0)]);
    assert_eq!(fed(&mut monitor, &[("disk", 90), ("disk", 0), ("swap", 0)]), 0);
    assert!(monitor.alerts().is_empty());
}

#[test]
fn names_without_a_limit_are_ignored() {
    let mut monitor = Monitor::new(&[("disk", 90)]);
    assert_eq!(fed(&mut monitor, &[("load", u64::MAX), ("", 1)]), 0);
    assert_eq!(Monitor::new(&[]).check(), 0);
}

#[test]
fn raised_name_is_silent() {
    let mut monitor = Monitor::new(&[("disk", 90), ("cpu", 50)]);
    assert_eq!(fed(&mut monitor, &[("disk", 95), ("disk", 96), ("cpu", 60)]), 2);
    assert_eq!(fed(&mut monitor, &[("disk", 97)]), 0);
    assert_eq!(monitor.alerts(), ["disk: 95 over 90", "cpu: 60 over 50"]);
}

#[test]
fn fallen_value_allows_a_new_alert() {
    let mut monitor = Monitor::new(&[("disk", 90)]);
    assert_eq!(fed(&mut monitor, &[("disk", 95), ("disk", 90), ("disk", 99)]), 2);
    assert_eq!(fed(&mut monitor, &[("disk", 10)]), 0);
    assert_eq!(fed(&mut monitor, &[("disk", 92)]), 1);
    assert_eq!(monitor.alerts(), ["disk: 95 over 90", "disk: 99 over 90", "disk: 92 over 90"]);
}

#[test]
fn samples_are_looked_at_once() {
    let mut monitor = Monitor::new(&[("disk", 90)]);
    assert_eq!(fed(&mut monitor, &[("disk", 95), ("disk", 10)]), 1);
    assert_eq!(monitor.check(), 0);
    assert_eq!(monitor.check(), 0);
    assert_eq!(monitor.alerts().len(), 1);
}
