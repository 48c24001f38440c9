use std::collections::HashMap;

#[derive(Default)]
pub struct Table {
    rows: HashMap<String, String>,
}

impl Table {
    pub fn new() -> Self {
        Table::default()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A copy of the value of `key`.
    pub fn get(&self, key: &str) -> Option<String> {
        self.rows.get(key).cloned()
    }

    pub fn begin(&mut self) -> Transaction<'_> {
        Transaction { table: self, changes: HashMap::new() }
    }
}

pub struct Transaction<'t> {
    table: &'t mut Table,
    changes: HashMap<String, Option<String>>,
}

impl<'t> Transaction<'t> {
    pub fn set(&mut self, key: &str, value: &str) {
        self.changes.insert(key.to_string(), Some(value.to_string()));
    }

    pub fn remove(&mut self, key: &str) {
        self.changes.insert(key.to_string(), None);
    }

    /// A copy of the value that `key` would have after a commit now.
    pub fn get(&self, key: &str) -> Option<String> {
        match self.changes.get(key) {
            Some(changed) => changed.clone(),
            None => self.table.get(key),
        }
    }

    /// Writes the changes into the table, and returns for how many keys the table is different from before.
    pub fn commit(self) -> usize {
        let mut different = 0;
        for (key, value) in self.changes {
            let before = match value.clone() {
                Some(value) => self.table.rows.insert(key, value),
                None => self.table.rows.remove(&key),
            };
            different += usize::from(before != value);
        }
        different
    }
}
