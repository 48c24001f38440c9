use answer::*;

fn flat(windows: &[(&str, u64, u64, u32)]) -> Vec<(String, u64, u64)> {
    let windows: Vec<Window> = windows
        .iter()
        .map(|&(name, start, end, priority)| Window { name: name.to_string(), start, end, priority })
        .collect();
    flatten(&windows).into_iter().map(|segment| (segment.name, segment.start, segment.end)).collect()
}

fn segments(expected: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    expected.iter().map(|&(name, start, end)| (name.to_string(), start, end)).collect()
}

#[test]
fn gaps_stay_gaps() {
    assert_eq!(flat(&[("b", 10, 12, 0), ("a", 1, 3, 5)]), segments(&[("a", 1, 3), ("b", 10, 12)]));
    assert_eq!(flat(&[]), segments(&[]));
}

#[test]
fn higher_priority_cuts_a_hole() {
    let seen = flat(&[("low", 0, 100, 1), ("high", 40, 60, 2)]);
    assert_eq!(seen, segments(&[("low", 0, 40), ("high", 40, 60), ("low", 60, 100)]));
}

#[test]
fn earlier_start_wins_a_tie() {
    let seen = flat(&[("late", 5, 20, 1), ("early", 0, 10, 1)]);
    assert_eq!(seen, segments(&[("early", 0, 10), ("late", 10, 20)]));
    let seen = flat(&[("early", 0, 10, 1), ("late", 5, 8, 1)]);
    assert_eq!(seen, segments(&[("early", 0, 10)]));
}

#[test]
fn first_of_the_list_wins_the_last_tie() {
    assert_eq!(flat(&[("b", 0, 5, 1), ("a", 0, 9, 1)]), segments(&[("b", 0, 5), ("a", 5, 9)]));
    assert_eq!(flat(&[("a", 0, 9, 1), ("b", 0, 5, 1)]), segments(&[("a", 0, 9)]));
}

#[test]
fn touching_segments_of_a_name_are_one() {
    assert_eq!(flat(&[("a", 0, 5, 1), ("a", 5, 9, 3)]), segments(&[("a", 0, 9)]));
    assert_eq!(flat(&[("a", 0, 5, 1), ("b", 3, 4, 0), ("a", 4, 7, 2)]), segments(&[("a", 0, 7)]));
    assert_eq!(flat(&[("a", 0, 5, 1), ("a", 6, 9, 1)]), segments(&[("a", 0, 5), ("a", 6, 9)]));
}

#[test]
fn empty_windows_cover_nothing() {
    let seen = flat(&[("none", 4, 4, 9), ("back", 8, 2, 9), ("a", 0, 10, 1)]);
    assert_eq!(seen, segments(&[("a", 0, 10)]));
    assert_eq!(flat(&[("none", 4, 4, 9)]), segments(&[]));
}

#[test]
fn priorities_are_nested() {
    let seen = flat(&[("a", 0, 50, 1), ("b", 10, 40, 2), ("c", 20, 30, 3), ("d", 25, 45, 2)]);
    let expected = [("a", 0, 10), ("b", 10, 20), ("c", 20, 30), ("b", 30, 40), ("d", 40, 45), ("a", 45, 50)];
    assert_eq!(seen, segments(&expected));
}

#[test]
fn large_times_are_no_problem() {
    let seen = flat(&[("a", 0, u64::MAX, 1), ("b", u64::MAX - 2, u64::MAX, 2)]);
    assert_eq!(seen, segments(&[("a", 0, u64::MAX - 2), ("b", u64::MAX - 2, u64::MAX)]));
}
