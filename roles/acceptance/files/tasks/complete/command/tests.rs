use answer::*;

#[test]
fn words_are_separated() {
    assert_eq!(words("  llama-server \t --port  80 ").unwrap(), ["llama-server", "--port", "80"]);
    assert_eq!(words(" \t ").unwrap(), Vec::<String>::new());
}

#[test]
fn quotes_keep_spaces() {
    assert_eq!(words(r#"echo "a  b" 'c  d'"#).unwrap(), ["echo", "a  b", "c  d"]);
    assert_eq!(words(r#"'"' "'" "#).unwrap(), ["\"", "'"]);
}

#[test]
fn touching_parts_are_one_word() {
    assert_eq!(words(r#"a"b c"'d' --x="1 2""#).unwrap(), ["ab cd", "--x=1 2"]);
}

#[test]
fn empty_quotes_are_a_word() {
    assert_eq!(words(r#"a "" b"#).unwrap(), ["a", "", "b"]);
    assert_eq!(words("''").unwrap(), [""]);
    assert_eq!(words(r#"a"" ''b"#).unwrap(), ["a", "b"]);
}

#[test]
fn backslash_keeps_the_next_character() {
    assert_eq!(words(r#"a\ b \" \\ \n"#).unwrap(), ["a b", "\"", "\\", "n"]);
    assert_eq!(words(r"\ ").unwrap(), [" "]);
}

#[test]
fn backslashes_within_quotes() {
    assert_eq!(words(r#""\"" "\\" "\n" "a\'""#).unwrap(), ["\"", "\\", "\\n", "a\\'"]);
    assert_eq!(words(r"'a\' 'b\\'").unwrap(), ["a\\", "b\\\\"]);
}

#[test]
fn open_quotes_are_refused() {
    assert_eq!(words("a 'b c"), Err(2));
    assert_eq!(words(r#"é "b"#), Err(3));
    assert_eq!(words(r#""a\""#), Err(0));
    assert_eq!(words(r#""a" 'b' "c\"#), Err(8));
}

#[test]
fn last_backslash_is_refused() {
    assert_eq!(words(r"ab\"), Err(2));
    assert_eq!(words(r"a \\ \"), Err(5));
}
