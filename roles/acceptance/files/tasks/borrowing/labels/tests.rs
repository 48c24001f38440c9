use answer::*;
use std::borrow::Cow;

#[test]
fn plain_value_is_borrowed() {
    for value in ["", "llama", "größe 'x' /dev/nvme0n1\t"] {
        match escape_label(value) {
            Cow::Borrowed(seen) => assert_eq!((seen, seen.as_ptr()), (value, value.as_ptr())),
            Cow::Owned(seen) => panic!("{seen:?} was copied"),
        }
    }
}

#[test]
fn escaped_value_is_owned() {
    for value in ["\\", "\"", "\n"] {
        assert!(matches!(escape_label(value), Cow::Owned(_)), "{value:?}");
    }
}

#[test]
fn each_character_is_escaped_once() {
    assert_eq!(escape_label("a\"b"), "a\\\"b");
    assert_eq!(escape_label("a\nb"), "a\\nb");
    assert_eq!(escape_label("C:\\new"), "C:\\\\new");
    assert_eq!(escape_label("\\\"\n"), "\\\\\\\"\\n");
}

#[test]
fn other_characters_stay() {
    assert_eq!(escape_label("\"größe\"\r\n"), "\\\"größe\\\"\r\\n");
}

#[test]
fn labels_outlive_their_pairs() {
    let texts = [String::from("node"), String::from("a\"1"), String::from("job"), String::from("rpc")];
    let seen = {
        let pairs = vec![(texts[0].as_str(), texts[1].as_str()), (&texts[2], &texts[3])];
        labels(&pairs)
    };
    assert_eq!(seen, [("node", Cow::from("a\\\"1")), ("job", Cow::from("rpc"))]);
    assert!(matches!(seen[1].1, Cow::Borrowed(_)));
    assert_eq!(labels(&[]), []);
}
