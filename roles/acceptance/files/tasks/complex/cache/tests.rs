use answer::*;

fn filled(budget: usize, entries: &[(&str, usize)]) -> Cache<String> {
    let mut cache = Cache::new(budget);
    for (key, weight) in entries {
        assert_eq!(cache.insert(key, key.to_uppercase(), *weight), Ok(vec![]));
    }
    cache
}

fn dropped(cache: &mut Cache<String>, key: &str, weight: usize) -> Vec<String> {
    let dropped = cache.insert(key, key.to_uppercase(), weight).unwrap();
    assert!(dropped.iter().all(|(key, value)| key.to_uppercase() == *value));
    dropped.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn oldest_entries_are_dropped_first() {
    let mut cache = filled(10, &[("a", 4), ("b", 4), ("c", 2)]);
    assert_eq!((cache.used(), cache.len()), (10, 3));
    assert_eq!(dropped(&mut cache, "d", 5), ["a", "b"]);
    assert_eq!((cache.used(), cache.len(), cache.peek("a")), (7, 2, None));
}

#[test]
fn get_renews_and_peek_does_not() {
    let mut cache = filled(3, &[("a", 1), ("b", 1), ("c", 1)]);
    assert_eq!(cache.get("a"), Some(&"A".to_string()));
    assert_eq!(cache.peek("b"), Some(&"B".to_string()));
    assert_eq!(cache.get("x"), None);
    assert_eq!(dropped(&mut cache, "d", 2), ["b", "c"]);
    assert!(cache.peek("a").is_some());
}

#[test]
fn replaced_weight_does_not_count() {
    let mut cache = filled(10, &[("a", 6), ("b", 4)]);
    assert_eq!(dropped(&mut cache, "a", 5), Vec::<String>::new());
    assert_eq!((cache.used(), cache.len()), (9, 2));
    assert_eq!(dropped(&mut cache, "c", 5), ["b"]);
    assert_eq!(dropped(&mut cache, "c", 10), ["a"]);
    assert_eq!((cache.used(), cache.len()), (10, 1));
}

#[test]
fn too_heavy_values_come_back() {
    let mut cache = filled(5, &[("a", 5)]);
    assert_eq!(cache.insert("b", "new".to_string(), 6), Err("new".to_string()));
    assert_eq!(cache.insert("a", "new".to_string(), usize::MAX), Err("new".to_string()));
    assert_eq!((cache.peek("a"), cache.used()), (Some(&"A".to_string()), 5));
}

#[test]
fn weightless_entries_take_part() {
    let mut cache = filled(2, &[("a", 0), ("b", 2), ("c", 0)]);
    assert_eq!(dropped(&mut cache, "d", 0), Vec::<String>::new());
    assert_eq!(cache.len(), 4);
    assert_eq!(dropped(&mut cache, "e", 1), ["a", "b"]);
    assert_eq!((cache.used(), cache.len()), (1, 3));
}

#[test]
fn budget_zero_keeps_weightless_entries_only() {
    let mut cache = filled(0, &[("a", 0), ("b", 0)]);
    assert!(cache.insert("c", String::new(), 1).is_err());
    assert_eq!(cache.len(), 2);
}

#[test]
fn removed_entries_free_their_weight() {
    struct Handle(u8);
    let mut cache = Cache::new(3);
    assert!(cache.insert("a", Handle(1), 3).is_ok() && !cache.is_empty());
    assert_eq!(cache.remove("a").map(|handle| handle.0), Some(1));
    assert!(cache.remove("a").is_none() && cache.is_empty());
    assert!(cache.insert("b", Handle(2), 3).map_or(false, |dropped| dropped.is_empty()));
    assert_eq!((cache.used(), cache.get("b").map(|handle| handle.0)), (3, Some(2)));
}
