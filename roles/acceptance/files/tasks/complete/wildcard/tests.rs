use answer::*;

#[test]
fn plain_text_matches_itself() {
    assert!(matches("head", "head"));
    assert!(!matches("head", "heads"));
    assert!(!matches("heads", "head"));
    assert!(!matches("head", "Head"));
}

#[test]
fn empty_pattern_matches_nothing_else() {
    assert!(matches("", ""));
    assert!(!matches("", "a"));
    assert!(matches("*", ""));
    assert!(matches("***", ""));
    assert!(!matches("?", ""));
}

#[test]
fn star_takes_any_number() {
    assert!(matches("llama-*", "llama-"));
    assert!(matches("llama-*", "llama-rpc"));
    assert!(matches("*.service", "head.service"));
    assert!(!matches("*.service", "head.services"));
    assert!(matches("a*c*e", "abcde"));
    assert!(!matches("a*c*e", "abed"));
}

#[test]
fn star_gives_back_what_follows() {
    assert!(matches("*ab", "aab"));
    assert!(matches("*aab", "aaaab"));
    assert!(matches("a*bc*bd", "abcbcbd"));
    assert!(!matches("a*bb", "ab"));
}

#[test]
fn question_mark_takes_one() {
    assert!(matches("node?", "node1"));
    assert!(!matches("node?", "node"));
    assert!(!matches("node?", "node12"));
    assert!(matches("*?", "x"));
    assert!(!matches("?*?", "x"));
    assert!(matches("?*?", "xy"));
}

#[test]
fn characters_are_not_bytes() {
    assert!(matches("caf?", "café"));
    assert!(matches("?", "語"));
    assert!(!matches("??", "é"));
    assert!(matches("*é*", "één"));
}

#[test]
fn many_stars_take_no_time() {
    let pattern = "*a".repeat(50) + "b";
    let name = "a".repeat(5_000);
    assert!(!matches(&pattern, &name));
    assert!(matches(&pattern, &(name + "b")));
}
