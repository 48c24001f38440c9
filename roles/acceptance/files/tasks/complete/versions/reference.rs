use std::cmp::Ordering;

/// Cuts off the first run of digits, or of anything else.
fn part(name: &str) -> (&str, &str) {
    let number = name.starts_with(|c: char| c.is_ascii_digit());
    let end = name.find(|c: char| c.is_ascii_digit() != number).unwrap_or(name.len());
    name.split_at(end)
}

/// Compares names of releases.
pub fn compare(mut left: &str, mut right: &str) -> Ordering {
    while !left.is_empty() && !right.is_empty() {
        let ((a, left_rest), (b, right_rest)) = (part(left), part(right));
        let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let order = match (is_number(a), is_number(b)) {
            (true, true) => {
                let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
                a.len().cmp(&b.len()).then(a.cmp(b))
            }
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => a.cmp(b),
        };
        if order != Ordering::Equal {
            return order;
        }
        left = left_rest;
        right = right_rest;
    }
    left.len().cmp(&right.len())
}
