use std::collections::BTreeMap;

pub type Table = BTreeMap<String, Value>;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Unset,
    Number(i64),
    Text(String),
    Table(Table),
}

/// Puts `over` over `base`.
pub fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match value {
            Value::Unset => {
                base.remove(&key);
            }
            Value::Table(inner) => match base.get_mut(&key) {
                Some(Value::Table(old)) => merge(old, inner),
                _ => {
                    base.insert(key, Value::Table(inner));
                }
            },
            other => {
                base.insert(key, other);
            }
        }
    }
}
