use answer::*;

fn all(text: &str) -> Vec<Token<'_>> {
    tokens(text).collect()
}

#[test]
fn rule_is_split() {
    let wanted = [Token::Word("port"), Token::Symbol('>'), Token::Symbol('='), Token::Number(8000)];
    assert_eq!(all("port >= 8000"), wanted);
    assert_eq!(all("\tport>=8000\n"), wanted);
}

#[test]
fn words_have_digits_and_underscores() {
    assert_eq!(all("_a1 b_2_"), [Token::Word("_a1"), Token::Word("b_2_")]);
    assert_eq!(all("1a2"), [Token::Number(1), Token::Word("a2")]);
}

#[test]
fn large_numbers_are_cut() {
    assert_eq!(all("4294967295 4294967296 99999999999999999999"), [Token::Number(u32::MAX); 3]);
    assert_eq!(all("007"), [Token::Number(7)]);
}

#[test]
fn other_characters_are_symbols() {
    assert_eq!(all("é-1"), [Token::Symbol('é'), Token::Symbol('-'), Token::Number(1)]);
    assert_eq!(all("aé\u{a0}²"), [Token::Word("a"), Token::Symbol('é'), Token::Symbol('²')]);
}

#[test]
fn end_stays_the_end() {
    let mut none = tokens(" \n ");
    assert_eq!((none.next(), none.next()), (None, None));
    let mut one = tokens("x ");
    assert_eq!((one.next(), one.next(), one.next()), (Some(Token::Word("x")), None, None));
}

#[test]
fn rest_is_what_follows() {
    let mut found = tokens("  a = 5  ");
    assert_eq!(found.rest(), "a = 5  ");
    found.next();
    assert_eq!(found.rest(), "= 5  ");
    found.by_ref().for_each(drop);
    assert_eq!(found.rest(), "");
}

#[test]
fn words_outlive_the_iterator() {
    let text = String::from("head worker 7");
    let (words, rest) = {
        let mut found = tokens(&text);
        let ahead = found.clone();
        found.next();
        let words: Vec<&str> = ahead.filter_map(|one| if let Token::Word(word) = one { Some(word) } else { None }).collect();
        (words, found.rest())
    };
    assert_eq!((words, rest), (vec!["head", "worker"], "worker 7"));
}
