use answer::*;
use std::collections::HashMap;

fn never(name: &str) -> Result<Vec<u8>, String> {
    panic!("{name} was loaded again")
}

#[test]
fn missing_value_is_loaded_and_kept() {
    let mut cache = HashMap::new();
    let seen = get_or_load(&mut cache, "a", |name| Ok::<_, String>(name.repeat(3).into_bytes()));
    assert_eq!(seen, Ok(&b"aaa"[..]));
    assert_eq!(cache["a"], b"aaa");
    assert_eq!(cache.len(), 1);
}

#[test]
fn known_value_is_not_loaded() {
    let mut cache = HashMap::from([("a".to_string(), vec![1, 2])]);
    assert_eq!(get_or_load(&mut cache, "a", never), Ok(&[1, 2][..]));
}

#[test]
fn empty_value_is_a_value() {
    let mut cache = HashMap::from([("a".to_string(), Vec::new())]);
    assert_eq!(get_or_load(&mut cache, "a", never), Ok(&[][..]));
    let mut cache = HashMap::new();
    assert_eq!(get_or_load(&mut cache, "b", |_| Ok::<_, String>(Vec::new())), Ok(&[][..]));
    assert_eq!(get_or_load(&mut cache, "b", never), Ok(&[][..]));
}

#[test]
fn failed_load_leaves_the_cache() {
    let mut cache = HashMap::from([("a".to_string(), vec![1])]);
    assert_eq!(get_or_load(&mut cache, "b", |_| Err("no route")), Err("no route"));
    assert_eq!(cache, HashMap::from([("a".to_string(), vec![1])]));
    assert_eq!(get_or_load(&mut cache, "b", |_| Ok::<_, String>(vec![2])), Ok(&[2][..]));
}

#[test]
fn result_borrows_from_the_cache() {
    let mut cache = HashMap::new();
    let bytes = vec![7; 100];
    let address = bytes.as_ptr();
    let seen = {
        let name = String::from("short lived");
        get_or_load(&mut cache, &name, |_| Ok::<_, String>(bytes)).unwrap()
    };
    assert_eq!(seen.as_ptr(), address);
}
