#[derive(Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub key: &'a str,
    pub value: &'a str,
}

pub fn parse_entry(line: &str) -> Option<Entry<'_>> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim_end(), value.trim_start());
    if key.is_empty() {
        return None;
    }
    Some(Entry { key, value: value.trim_matches('"') })
}
