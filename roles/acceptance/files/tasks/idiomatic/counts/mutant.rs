use std::collections::BTreeMap;

pub fn count_by<T, K: Ord>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(key(&item)).or_insert(0) += 1;
    }
    counts
}

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

pub fn top<K: Ord + Clone>(counts: &BTreeMap<K, usize>, most: usize) -> Vec<(K, usize)> {
    let mut entries: Vec<(usize, K)> = counts.iter().map(|(key, &count)| (count, key.clone())).collect();
    entries.sort();
    entries.into_iter().rev().take(most).map(|(count, key)| (key, count)).collect()
}
