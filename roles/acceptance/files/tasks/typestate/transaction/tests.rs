use answer::*;

fn table(pairs: &[(&str, &str)]) -> Table {
    let mut table = Table::new();
    let mut change = table.begin();
    for (key, value) in pairs {
        change.set(key, value);
    }
    assert_eq!(change.commit(), pairs.len());
    table
}

#[test]
fn commit_writes_the_changes() {
    let mut table = table(&[("a", "1"), ("b", "2")]);
    assert_eq!((table.len(), table.is_empty(), table.get("a")), (2, false, Some("1".to_string())));
    let mut change = table.begin();
    change.set("a", "9");
    change.remove("b");
    change.set("c", "3");
    assert_eq!(change.commit(), 3);
    assert_eq!((table.get("a"), table.get("b"), table.get("c")), (Some("9".into()), None, Some("3".into())));
    assert_eq!(table.len(), 2);
}

#[test]
fn dropped_transaction_changes_nothing() {
    let mut table = table(&[("a", "1")]);
    {
        let mut change = table.begin();
        change.set("a", "2");
        change.set("b", "3");
        change.remove("a");
    }
    assert_eq!((table.len(), table.get("a"), table.get("b")), (1, Some("1".to_string()), None));
}

#[test]
fn transaction_sees_its_own_changes() {
    let mut table = table(&[("a", "1"), ("b", "2")]);
    let mut change = table.begin();
    change.set("a", "9");
    change.remove("b");
    assert_eq!((change.get("a"), change.get("b"), change.get("c")), (Some("9".into()), None, None));
    change.set("b", "");
    assert_eq!(change.get("b"), Some(String::new()));
    drop(change);
    assert_eq!(table.begin().get("a"), Some("1".to_string()));
}

#[test]
fn last_change_of_a_key_counts() {
    let mut table = table(&[("a", "1")]);
    let mut change = table.begin();
    change.remove("a");
    change.set("a", "2");
    change.set("b", "1");
    change.remove("b");
    assert_eq!(change.commit(), 1);
    assert_eq!((table.get("a"), table.len()), (Some("2".to_string()), 1));
}

#[test]
fn changes_without_effect_do_not_count() {
    let mut table = table(&[("a", "1"), ("b", "2")]);
    let mut change = table.begin();
    change.set("a", "1");
    change.remove("x");
    change.remove("b");
    change.set("b", "2");
    assert_eq!(change.commit(), 0);
    assert_eq!(table.begin().commit(), 0);
    assert!(Table::new().is_empty());
}
