use std::ops::{Range, RangeInclusive};

pub fn first_free(used: &[u16], mut ports: RangeInclusive<u16>) -> Option<u16> {
    ports.find(|port| !used.contains(port))
}

pub fn extremes(samples: &[i64]) -> Option<(i64, i64)> {
    Some((*samples.iter().min()?, *samples.iter().max()?))
}

pub fn longest_up(states: &[bool]) -> Option<Range<usize>> {
    let mut start = 0;
    states
        .split(|&up| !up)
        .map(|run| {
            let found = start..start + run.len();
            start = found.end + 1;
            found
        })
        .filter(|run| !run.is_empty())
        .max_by_key(|run| run.len())
}
