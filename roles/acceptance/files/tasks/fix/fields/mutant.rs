use std::collections::HashMap;

pub struct Record<'a> {
    pub name: &'a str,
    fields: HashMap<&'a str, &'a str>,
}

pub fn parse(line: &str) -> Option<Record<'_>> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let mut fields = HashMap::new();
    for word in words {
        let (key, value) = word.split_once('=')?;
        if key.is_empty() {
            return None;
        }
        fields.insert(key, value);
    }
    Some(Record { name, fields })
}

impl<'a> Record<'a> {
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.fields.get(key).copied()
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }
}
