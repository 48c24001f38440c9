use answer::*;
use std::error::Error;

fn account(name: &str, uid: u32, gid: u32) -> Account {
    Account { name: name.to_string(), uid, gid }
}

fn error(line: &str) -> AccountError {
    line.parse::<Account>().unwrap_err()
}

#[test]
fn account_is_parsed() {
    assert_eq!("llama:990:4294967295".parse(), Ok(account("llama", 990, u32::MAX)));
}

#[test]
fn fields_are_counted_first() {
    assert_eq!(error(""), AccountError::Fields(1));
    assert_eq!(error(":x"), AccountError::Fields(2));
    assert_eq!(error("a:1:2:"), AccountError::Fields(4));
}

#[test]
fn name_comes_before_numbers() {
    assert_eq!(error(":x:y"), AccountError::Name);
    assert!(matches!(error("a:x:1"), AccountError::Number(_)));
    assert!(matches!(error("a:1:4294967296"), AccountError::Number(_)));
    assert_eq!(error("a:-1:"), AccountError::from("-1".parse::<u32>().unwrap_err()));
}

#[test]
fn errors_have_texts_and_sources() {
    assert_eq!(error("a").to_string(), "3 fields are needed, 1 seen");
    assert_eq!(error(":1:1").to_string(), "empty name");
    let number = "".parse::<u32>().unwrap_err();
    assert_eq!(error("a::1").to_string(), number.to_string());
    assert_eq!(error("a::1").source().unwrap().to_string(), number.to_string());
    assert!(error("a").source().is_none() && error(":1:1").source().is_none());
}

#[test]
fn lines_are_parsed_in_order() {
    let text = "# accounts\n\nllama:1:2\r\n   rpc:3:4  \n  # end:1\n";
    assert_eq!(parse_accounts(text), Ok(vec![account("llama", 1, 2), account("rpc", 3, 4)]));
    assert_eq!(parse_accounts(" \n#"), Ok(vec![]));
}

#[test]
fn first_wrong_line_is_named() {
    assert_eq!(parse_accounts("#\n\na:1:1\nb:1\n:1:1"), Err((4, AccountError::Fields(2))));
    assert_eq!(parse_accounts(":1:1\nb"), Err((1, AccountError::Name)));
}
