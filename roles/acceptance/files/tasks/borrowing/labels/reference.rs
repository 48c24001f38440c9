use std::borrow::Cow;

pub fn escape_label(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(value);
    }
    let mut escaped = String::with_capacity(value.len() + 8);
    for c in value.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

pub fn labels<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<(&'a str, Cow<'a, str>)> {
    pairs.iter().map(|&(name, value)| (name, escape_label(value))).collect()
}
