use answer::*;

fn chain(nodes: &[(&str, u32)]) -> Chain {
    let mut chain = Chain::new();
    for (key, hits) in nodes.iter().rev() {
        chain.push(key, *hits);
    }
    chain
}

#[test]
fn front_middle_and_back_are_removed() {
    let mut seen = chain(&[("a", 1), ("b", 2), ("c", 3), ("d", 4)]);
    assert_eq!(seen.keys(), ["a", "b", "c", "d"]);
    assert_eq!((seen.remove("a"), seen.remove("c"), seen.remove("d")), (Some(1), Some(3), Some(4)));
    assert_eq!(seen.keys(), ["b"]);
    assert_eq!(seen.remove("b"), Some(2));
    assert!(seen.keys().is_empty());
}

#[test]
fn unknown_key_removes_nothing() {
    let mut seen = chain(&[("a", 1), ("b", 2)]);
    assert_eq!(seen.remove("c"), None);
    assert_eq!(seen.keys(), ["a", "b"]);
    assert_eq!(Chain::new().remove("a"), None);
}

#[test]
fn first_of_equal_keys_is_removed() {
    let mut seen = chain(&[("x", 0), ("a", 1), ("a", 2)]);
    assert_eq!(seen.remove("a"), Some(1));
    assert_eq!(seen.remove("a"), Some(2));
    assert_eq!(seen.remove("a"), None);
}

#[test]
fn neighbours_are_pruned() {
    let mut seen = chain(&[("a", 1), ("b", 1), ("c", 9), ("d", 2), ("e", 0), ("f", 5)]);
    assert_eq!(seen.prune(3), 4);
    assert_eq!(seen.keys(), ["c", "f"]);
}

#[test]
fn limit_itself_is_kept() {
    let mut seen = chain(&[("a", 3), ("b", 2)]);
    assert_eq!(seen.prune(0), 0);
    assert_eq!(seen.prune(3), 1);
    assert_eq!(seen.keys(), ["a"]);
}

#[test]
fn all_are_pruned() {
    let mut seen = chain(&[("a", 0), ("b", 0), ("c", 0)]);
    assert_eq!(seen.prune(1), 3);
    assert_eq!(seen.prune(1), 0);
    seen.push("d", 7);
    assert_eq!(seen.keys(), ["d"]);
}
