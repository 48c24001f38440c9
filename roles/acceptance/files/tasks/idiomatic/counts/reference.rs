use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How many items have each key.
pub fn count_by<T, K: Ord>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(key(&item)).or_insert(0) += 1;
    }
    counts
}

/// The values of each key, in the order of the items.
pub fn group_by<T, K: Ord, V>(
    items: impl IntoIterator<Item = T>,
    split: impl Fn(T) -> (K, V),
) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in items.into_iter().map(split) {
        groups.entry(key).or_default().push(value);
    }
    groups
}

/// Entries with the highest counts, the highest first; of equal counts, the least key first.
pub fn top<K: Ord + Clone>(counts: &BTreeMap<K, usize>, most: usize) -> Vec<(K, usize)> {
    let mut entries: Vec<(K, usize)> = counts.iter().map(|(key, &count)| (key.clone(), count)).collect();
    // Entries with equal counts stay in the order of the map.
    entries.sort_by_key(|&(_, count)| Reverse(count));
    entries.truncate(most);
    entries
}
