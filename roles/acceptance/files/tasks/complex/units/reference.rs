use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, PartialEq, Eq)]
pub enum OrderError {
    Missing { unit: String, needs: String },
    Cycle(Vec<String>),
}

pub fn start_order(units: &[(&str, &[&str])]) -> Result<Vec<String>, OrderError> {
    // Of each unit that is left, the needs that are left; both in the order of names.
    let mut left: BTreeMap<&str, BTreeSet<&str>> =
        units.iter().map(|(name, needs)| (*name, needs.iter().copied().collect())).collect();
    for (unit, needs) in units {
        if let Some(missing) = needs.iter().find(|needed| !left.contains_key(*needed)) {
            return Err(OrderError::Missing { unit: unit.to_string(), needs: missing.to_string() });
        }
    }
    let mut order = Vec::with_capacity(units.len());
    while !left.is_empty() {
        let next = match left.iter().find(|(_, needs)| needs.is_empty()) {
            Some((name, _)) => *name,
            None => return Err(OrderError::Cycle(cycle(&left))),
        };
        left.remove(next);
        for needs in left.values_mut() {
            needs.remove(next);
        }
        order.push(next.to_string());
    }
    Ok(order)
}

/// A cycle among units each of which needs another one that is left.
fn cycle(left: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let mut path: Vec<&str> = Vec::new();
    let mut unit = left.keys().next().copied();
    while let Some(name) = unit {
        if let Some(start) = path.iter().position(|seen| *seen == name) {
            path.drain(..start);
            break;
        }
        path.push(name);
        unit = left[name].iter().next().copied();
    }
    let first = path.iter().enumerate().min_by_key(|(_, name)| **name).map_or(0, |(index, _)| index);
    path.rotate_left(first);
    path.into_iter().map(String::from).collect()
}
