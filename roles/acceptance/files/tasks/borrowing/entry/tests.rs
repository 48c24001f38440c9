use answer::*;

fn pair(line: &str) -> Option<(&str, &str)> {
    parse_entry(line).map(|entry| (entry.key, entry.value))
}

#[test]
fn white_space_is_removed() {
    assert_eq!(pair("  port =\t8080 \n"), Some(("port", "8080")));
    assert_eq!(pair("empty="), Some(("empty", "")));
}

#[test]
fn lines_without_an_entry() {
    for line in ["", "   ", "# port=1", "  #x=2", "port", "=1", "  = 1"] {
        assert_eq!(parse_entry(line), None, "{line:?}");
    }
}

#[test]
fn first_equals_sign_separates() {
    assert_eq!(pair("args=--a=1 --b=2"), Some(("args", "--a=1 --b=2")));
    assert_eq!(pair("a=#b"), Some(("a", "#b")));
}

#[test]
fn one_pair_of_quotes_is_removed() {
    assert_eq!(pair("name=\" two words \""), Some(("name", " two words ")));
    assert_eq!(pair("name=\"\"x\"\""), Some(("name", "\"x\"")));
    assert_eq!(pair("name=\"\""), Some(("name", "")));
}

#[test]
fn single_quotes_and_halves_stay() {
    assert_eq!(pair("name=\""), Some(("name", "\"")));
    assert_eq!(pair("name=\"open"), Some(("name", "\"open")));
    assert_eq!(pair("name=close\""), Some(("name", "close\"")));
}

#[test]
fn slices_lie_in_the_line() {
    let line = String::from("  key = \"value\" ");
    let inside = line.as_bytes().as_ptr_range();
    let entry = parse_entry(&line).unwrap();
    for part in [entry.key, entry.value] {
        assert!(inside.contains(&part.as_ptr()));
    }
}
