use std::collections::{BTreeMap, HashMap};

struct Entry<V> {
    value: V,
    weight: usize,
    turn: u64,
}

pub struct Cache<V> {
    budget: usize,
    used: usize,
    turn: u64,
    entries: HashMap<String, Entry<V>>,
    order: BTreeMap<u64, String>,
}

impl<V> Cache<V> {
    pub fn new(budget: usize) -> Self {
        Cache { budget, used: 0, turn: 0, entries: HashMap::new(), order: BTreeMap::new() }
    }

    pub fn insert(&mut self, key: &str, value: V, weight: usize) -> Result<Vec<(String, V)>, V> {
        if weight > self.budget {
            return Err(value);
        }
        let mut dropped = Vec::new();
        while self.used > self.budget - weight {
            let oldest = self.order.values().next().cloned();
            match oldest.and_then(|oldest| self.remove(&oldest).map(|value| (oldest, value))) {
                Some(entry) => dropped.push(entry),
                None => break,
            }
        }
        self.remove(key);
        self.turn += 1;
        self.used += weight;
        self.order.insert(self.turn, key.to_string());
        self.entries.insert(key.to_string(), Entry { value, weight, turn: self.turn });
        Ok(dropped)
    }

    pub fn get(&mut self, key: &str) -> Option<&V> {
        let entry = self.entries.get_mut(key)?;
        let name = self.order.remove(&entry.turn)?;
        self.turn += 1;
        entry.turn = self.turn;
        self.order.insert(self.turn, name);
        Some(&entry.value)
    }

    pub fn peek(&self, key: &str) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub fn remove(&mut self, key: &str) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.turn);
        self.used -= entry.weight;
        Some(entry.value)
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
