pub fn nodes(rows: &[(String, u32)]) -> String {
    let rows: Vec<_> = rows.iter().map(|(name, cards)| vec![name.clone(), cards.to_string()]).collect();
    table(&["NODE", "CARDS"], &rows)
}

/// (name, port); without a port it is a dash.
pub fn services(rows: &[(String, Option<u16>)]) -> String {
    let port = |port: Option<u16>| port.map_or("-".to_string(), |port| port.to_string());
    let rows: Vec<_> = rows.iter().map(|(name, number)| vec![name.clone(), port(*number)]).collect();
    table(&["SERVICE", "PORT"], &rows)
}

pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    if heads.is_empty() {
        return String::new();
    }
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let mut lines: Vec<Vec<String>> = vec![heads.iter().map(|head| head.to_string()).collect()];
    lines.extend(rows.iter().map(|row| (0..heads.len()).map(|column| cell(row, column)).collect()));
    let widths: Vec<usize> = (0..heads.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, &width)| format!("{:<width$}", cell, width = width)).collect();
        text.push_str(padded.join("  ").trim_end_matches(' '));
        text.push('\n');
    }
    text
}
