use answer::*;
use std::collections::HashMap;

fn eval(text: &str) -> Result<i64, EvalError> {
    let known = [("total", 8192), ("_a1", 3), ("K", 7), ("min", i64::MIN)];
    evaluate(text, &known.iter().map(|(name, value)| (name.to_string(), *value)).collect::<HashMap<_, _>>())
}

#[test]
fn operators_have_their_order() {
    assert_eq!(eval("2+3*4"), Ok(14));
    assert_eq!(eval("(2+3)*4"), Ok(20));
    assert_eq!(eval("10-3-2"), Ok(5));
    assert_eq!(eval("100/10/5"), Ok(2));
    assert_eq!(eval("7/2*2"), Ok(6));
}

#[test]
fn signs_stand_before_factors() {
    assert_eq!(eval("-7/2"), Ok(-3));
    assert_eq!(eval("--5 - -2"), Ok(7));
    assert_eq!(eval("2*-(1+2)"), Ok(-6));
    assert_eq!(eval("+1"), Err(EvalError::Unexpected(0)));
}

#[test]
fn suffixes_multiply() {
    assert_eq!(eval("2K"), Ok(2048));
    assert_eq!(eval("1M+1"), Ok(1_048_577));
    assert_eq!(eval("3G"), Ok(3 << 30));
    assert_eq!(eval("1k"), Err(EvalError::Unexpected(1)));
    assert_eq!(eval("1 K"), Err(EvalError::Unexpected(2)));
    assert_eq!(eval("1KM"), Err(EvalError::Unexpected(2)));
}

#[test]
fn names_are_looked_up() {
    assert_eq!(eval(" ( total - 2K )\t/ _a1\n"), Ok(2048));
    assert_eq!(eval("K*K"), Ok(49));
    assert_eq!(eval("total2"), Err(EvalError::Unknown("total2".to_string())));
}

#[test]
fn unexpected_characters_have_offsets() {
    assert_eq!(eval("2x"), Err(EvalError::Unexpected(1)));
    assert_eq!(eval("1 + ü"), Err(EvalError::Unexpected(4)));
    assert_eq!(eval("(1 2)"), Err(EvalError::Unexpected(3)));
    assert_eq!(eval("1)"), Err(EvalError::Unexpected(1)));
    assert_eq!(eval("()"), Err(EvalError::Unexpected(1)));
    assert_eq!(eval("4 * / 2"), Err(EvalError::Unexpected(4)));
}

#[test]
fn text_ends_too_early() {
    for text in ["", "  ", "1+", "(1", "-", "(2*"] {
        assert_eq!(eval(text), Err(EvalError::End), "{text:?}");
    }
}

#[test]
fn division_by_zero_is_reported() {
    assert_eq!(eval("1/0"), Err(EvalError::DivideByZero));
    assert_eq!(eval("total/(_a1-3)"), Err(EvalError::DivideByZero));
    assert_eq!(eval("0/5"), Ok(0));
}

#[test]
fn overflow_is_reported() {
    assert_eq!(eval("9223372036854775807"), Ok(i64::MAX));
    for text in ["9223372036854775808", "9223372036854775807+1", "9000000000G", "4G*4G", "-min", "min/-1", "min-1"] {
        assert_eq!(eval(text), Err(EvalError::Overflow), "{text:?}");
    }
}
