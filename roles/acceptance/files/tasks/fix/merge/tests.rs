use answer::*;

fn table(entries: &[(&str, Value)]) -> Table {
    entries.iter().map(|(key, value)| (key.to_string(), value.clone())).collect()
}

fn text(value: &str) -> Value {
    Value::Text(value.to_string())
}

fn merged(base: &[(&str, Value)], over: &[(&str, Value)]) -> Table {
    let mut base = table(base);
    merge(&mut base, table(over));
    base
}

#[test]
fn values_are_replaced_and_added() {
    let found = merged(
        &[("port", Value::Number(80)), ("name", text("a"))],
        &[("port", text("http")), ("level", Value::Number(3))],
    );
    let wanted = [("port", text("http")), ("name", text("a")), ("level", Value::Number(3))];
    assert_eq!(found, table(&wanted));
}

#[test]
fn unset_removes_a_key() {
    let found = merged(&[("a", Value::Number(1)), ("b", Value::Number(2))], &[("a", Value::Unset), ("c", Value::Unset)]);
    assert_eq!(found, table(&[("b", Value::Number(2))]));
}

#[test]
fn tables_are_merged() {
    let old = table(&[("host", text("a")), ("port", Value::Number(1)), ("path", text("/"))]);
    let new = table(&[("port", Value::Number(2)), ("path", Value::Unset)]);
    let found = merged(&[("server", Value::Table(old))], &[("server", Value::Table(new))]);
    let wanted = table(&[("host", text("a")), ("port", Value::Number(2))]);
    assert_eq!(found, table(&[("server", Value::Table(wanted))]));
}

#[test]
fn table_replaces_a_value() {
    let new = Value::Table(table(&[("port", Value::Number(2))]));
    assert_eq!(merged(&[("server", text("a"))], &[("server", new.clone())]), table(&[("server", new)]));
}

#[test]
fn value_replaces_a_table() {
    let old = Value::Table(table(&[("port", Value::Number(2))]));
    assert_eq!(merged(&[("server", old)], &[("server", text("a"))]), table(&[("server", text("a"))]));
}

#[test]
fn new_tables_have_nothing_unset() {
    let deep = table(&[("a", Value::Unset), ("b", Value::Number(1))]);
    let new = table(&[("x", Value::Unset), ("deep", Value::Table(deep))]);
    let wanted = table(&[("deep", Value::Table(table(&[("b", Value::Number(1))])))]);
    assert_eq!(merged(&[], &[("new", Value::Table(new))]), table(&[("new", Value::Table(wanted))]));
}

#[test]
fn empty_tables_stay() {
    let only_unset = Value::Table(table(&[("x", Value::Unset)]));
    let found = merged(&[("a", Value::Number(1))], &[("a", only_unset), ("b", Value::Table(Table::new()))]);
    assert_eq!(found, table(&[("a", Value::Table(Table::new())), ("b", Value::Table(Table::new()))]));
}
