use answer::*;

fn order(units: &[(&str, &[&str])]) -> Vec<String> {
    start_order(units).unwrap()
}

fn cycle(names: &[&str]) -> Result<Vec<String>, OrderError> {
    Err(OrderError::Cycle(names.iter().map(|name| name.to_string()).collect()))
}

#[test]
fn needs_start_first() {
    assert_eq!(order(&[("gateway", &["head"]), ("head", &["rpc", "model"]), ("model", &[]), ("rpc", &[])]), [
        "model", "rpc", "head", "gateway"
    ]);
    assert!(order(&[]).is_empty());
}

#[test]
fn first_name_that_can_start_is_next() {
    assert_eq!(order(&[("z", &[]), ("b", &["a"]), ("a", &[])]), ["a", "b", "z"]);
    assert_eq!(order(&[("a", &["z"]), ("b", &[]), ("c", &[]), ("z", &[])]), ["b", "c", "z", "a"]);
    assert_eq!(order(&[("B", &[]), ("a", &[]), ("C", &[])]), ["B", "C", "a"]);
}

#[test]
fn repeated_needs_count_once() {
    assert_eq!(order(&[("b", &["a", "a", "a"]), ("a", &[])]), ["a", "b"]);
}

#[test]
fn missing_need_is_reported_first() {
    let seen = start_order(&[("a", &["a"]), ("c", &["a", "y", "x"]), ("b", &["w"])]);
    assert_eq!(seen, Err(OrderError::Missing { unit: "c".to_string(), needs: "y".to_string() }));
}

#[test]
fn cycle_begins_with_its_first_name() {
    assert_eq!(start_order(&[("c", &["b"]), ("b", &["d"]), ("d", &["c"])]), cycle(&["b", "d", "c"]));
    assert_eq!(start_order(&[("a", &["a"]), ("b", &[])]), cycle(&["a"]));
}

#[test]
fn way_into_the_cycle_is_left_out() {
    let units: &[(&str, &[&str])] = &[("a", &["z"]), ("z", &["y"]), ("y", &["x", "ok"]), ("x", &["z"]), ("ok", &[])];
    assert_eq!(start_order(units), cycle(&["x", "z", "y"]));
}

#[test]
fn first_need_that_is_left_is_followed() {
    let units: &[(&str, &[&str])] =
        &[("a", &["c", "b", "ok"]), ("b", &["d"]), ("c", &["a"]), ("d", &["b"]), ("ok", &[])];
    assert_eq!(start_order(units), cycle(&["b", "d"]));
}
