use std::collections::HashMap;

pub fn get_or_load<'a, E>(
    cache: &'a mut HashMap<String, Vec<u8>>,
    name: &str,
    load: impl FnOnce(&str) -> Result<Vec<u8>, E>,
) -> Result<&'a [u8], E> {
    let entry = cache.entry(name.to_string()).or_default();
    if entry.is_empty() {
        *entry = load(name)?;
    }
    Ok(entry)
}
