use answer::*;
use std::cmp::Ordering::{Equal, Greater, Less};

#[test]
fn numbers_compare_by_value() {
    assert_eq!(compare("b7760", "b11434"), Less);
    assert_eq!(compare("1.10", "1.9"), Greater);
    assert_eq!(compare("2", "10"), Less);
}

#[test]
fn equal_names_are_equal() {
    assert_eq!(compare("", ""), Equal);
    assert_eq!(compare("v1.2-rc3", "v1.2-rc3"), Equal);
}

#[test]
fn leading_zeros_do_not_count() {
    assert_eq!(compare("1.07", "1.7"), Equal);
    assert_eq!(compare("000", "0"), Equal);
    assert_eq!(compare("a01b2", "a1b10"), Less);
    assert_eq!(compare("0", "00a"), Less);
}

#[test]
fn numbers_may_be_long() {
    let long = "9".repeat(40);
    assert_eq!(compare(&long, &(long.clone() + "0")), Less);
    assert_eq!(compare("18446744073709551617", "18446744073709551616"), Greater);
    assert_eq!(compare(&format!("0{}", long), &long), Equal);
}

#[test]
fn shorter_names_are_less() {
    assert_eq!(compare("1.9", "1.9-rc2"), Less);
    assert_eq!(compare("b", "b1"), Less);
    assert_eq!(compare("", "0"), Less);
    assert_eq!(compare("1.9.1", "1.9"), Greater);
}

#[test]
fn numbers_are_less_than_texts() {
    assert_eq!(compare("1", "-"), Less);
    assert_eq!(compare("a1", "a"), Greater);
    assert_eq!(compare("x", "999"), Greater);
}

#[test]
fn texts_compare_as_a_whole() {
    assert_eq!(compare("1-rc1", "1-beta2"), Greater);
    assert_eq!(compare("ab1", "a.1"), Greater);
    assert_eq!(compare("a1", "ab"), Less);
    assert_eq!(compare("v٣", "v9"), Greater);
}

#[test]
fn order_is_the_same_from_both_sides() {
    let sorted = ["", "0", "1", "1.9", "1.9-rc2", "1.10", "b", "b9", "b10", "b10a", "b10b", "c"];
    for (left, a) in sorted.iter().enumerate() {
        for (right, b) in sorted.iter().enumerate() {
            assert_eq!(compare(a, b), left.cmp(&right), "{:?} {:?}", a, b);
        }
    }
}
