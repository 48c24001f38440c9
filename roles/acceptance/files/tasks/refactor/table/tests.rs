use answer::*;

fn cells(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

#[test]
fn nodes_are_as_before() {
    let rows = [("n1".to_string(), 2), ("worker-12".to_string(), 0)];
    assert_eq!(nodes(&rows), "NODE       CARDS\nn1         2\nworker-12  0\n");
    assert_eq!(nodes(&[]), "NODE  CARDS\n");
}

#[test]
fn services_are_as_before() {
    let rows = [("chat".to_string(), Some(8000)), ("batch".to_string(), None)];
    assert_eq!(services(&rows), "SERVICE  PORT\nchat     8000\nbatch    -\n");
}

#[test]
fn widths_are_in_characters() {
    assert_eq!(nodes(&[("schön".to_string(), 1)]), "NODE   CARDS\nschön  1\n");
    assert_eq!(table(&["ü", "B"], &[cells(&["a", "b"])]), "ü  B\na  b\n");
}

#[test]
fn columns_have_their_own_widths() {
    let rows = [cells(&["1", "22", "3"]), cells(&["4444", "5", "666666"])];
    assert_eq!(table(&["A", "BBB", "C"], &rows), "A     BBB  C\n1     22   3\n4444  5    666666\n");
}

#[test]
fn missing_cells_are_empty() {
    let rows = [cells(&["x"]), cells(&[]), cells(&["", "y", "", "left out"])];
    assert_eq!(table(&["A", "B", "C"], &rows), "A  B  C\nx\n\n   y\n");
}

#[test]
fn no_line_ends_with_a_space() {
    assert_eq!(table(&["A", "B  "], &[cells(&["x ", " y "]), cells(&["  ", " "])]), "A   B\nx    y\n\n");
}

#[test]
fn no_heads_have_no_table() {
    assert_eq!(table(&[], &[cells(&["x"]), cells(&[])]), "");
    assert_eq!(table(&["A"], &[]), "A\n");
}
