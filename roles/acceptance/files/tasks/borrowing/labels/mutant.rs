use std::borrow::Cow;

pub fn escape_label(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(value.replace('"', "\\\"").replace('\n', "\\n").replace('\\', "\\\\"))
}

pub fn labels<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<(&'a str, Cow<'a, str>)> {
    pairs.iter().map(|&(name, value)| (name, escape_label(value))).collect()
}
