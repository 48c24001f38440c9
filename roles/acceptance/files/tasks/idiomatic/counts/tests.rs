use answer::*;
use std::collections::BTreeMap;

#[test]
fn items_are_counted_by_key() {
    let paths = vec!["/v1/chat", "/health", "/v1/chat", "/v1/models"];
    let counts = count_by(paths.iter(), |path| path.to_string());
    let wanted = [("/health", 1), ("/v1/chat", 2), ("/v1/models", 1)];
    assert_eq!(counts, wanted.iter().map(|&(path, count)| (path.to_string(), count)).collect::<BTreeMap<_, _>>());
}

#[test]
fn keys_are_computed() {
    let counts = count_by([200, 204, 404, 502, 503, 500], |status: &u16| status / 100);
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(2, 2), (4, 1), (5, 3)]);
}

#[test]
fn nothing_has_no_counts() {
    assert!(count_by(Vec::<u8>::new(), |&byte| byte).is_empty());
    assert!(group_by(Vec::<u8>::new(), |byte| (byte, byte)).is_empty());
    assert!(top(&BTreeMap::<u8, usize>::new(), 3).is_empty());
}

#[test]
fn groups_keep_the_order() {
    let requests = vec![("b", 9), ("a", 5), ("b", 1), ("a", 7), ("b", 5)];
    let groups = group_by(requests, |(path, time)| (path, time));
    assert_eq!(groups.into_iter().collect::<Vec<_>>(), [("a", vec![5, 7]), ("b", vec![9, 1, 5])]);
}

#[test]
fn values_may_be_moved() {
    struct Owned(String);
    let items = vec![(1, Owned("x".to_string())), (1, Owned("y".to_string()))];
    let groups = group_by(items, |item| item);
    let texts: Vec<&str> = groups[&1].iter().map(|owned| owned.0.as_str()).collect();
    assert_eq!(texts, ["x", "y"]);
}

#[test]
fn highest_counts_come_first() {
    let counts = BTreeMap::from([("a", 2), ("b", 7), ("c", 1), ("d", 4)]);
    assert_eq!(top(&counts, 2), [("b", 7), ("d", 4)]);
    assert_eq!(top(&counts, 9), [("b", 7), ("d", 4), ("a", 2), ("c", 1)]);
    assert!(top(&counts, 0).is_empty());
}

#[test]
fn equal_counts_have_the_least_key_first() {
    let counts = BTreeMap::from([("d", 3), ("a", 1), ("c", 3), ("b", 3)]);
    assert_eq!(top(&counts, 3), [("b", 3), ("c", 3), ("d", 3)]);
    assert_eq!(top(&counts, 2), [("b", 3), ("c", 3)]);
}
