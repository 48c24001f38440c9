use std::collections::hash_map::{Entry, HashMap};

pub fn get_or_load<'a, E>(
    cache: &'a mut HashMap<String, Vec<u8>>,
    name: &str,
    load: impl FnOnce(&str) -> Result<Vec<u8>, E>,
) -> Result<&'a [u8], E> {
    match cache.entry(name.to_string()) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => Ok(entry.insert(load(name)?)),
    }
}
