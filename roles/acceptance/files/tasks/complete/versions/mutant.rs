use std::cmp::Ordering;

fn part(name: &str) -> (&str, &str) {
    let number = name.starts_with(|c: char| c.is_ascii_digit());
    let end = name.find(|c: char| c.is_ascii_digit() != number).unwrap_or(name.len());
    name.split_at(end)
}

/// Compares names of releases.
pub fn compare(mut left: &str, mut right: &str) -> Ordering {
    while !left.is_empty() && !right.is_empty() {
        let ((a, left_rest), (b, right_rest)) = (part(left), part(right));
        let order = match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        };
        if order != Ordering::Equal {
            return order;
        }
        left = left_rest;
        right = right_rest;
    }
    left.len().cmp(&right.len())
}
