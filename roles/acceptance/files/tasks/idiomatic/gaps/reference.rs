use std::ops::{Range, RangeInclusive};

/// The least of these ports that is not used.
pub fn first_free(used: &[u16], mut ports: RangeInclusive<u16>) -> Option<u16> {
    ports.find(|port| !used.contains(port))
}

/// The least and the greatest sample.
pub fn extremes(samples: &[i64]) -> Option<(i64, i64)> {
    Some((*samples.iter().min()?, *samples.iter().max()?))
}

/// The longest run of true, the first of several.
pub fn longest_up(states: &[bool]) -> Option<Range<usize>> {
    let mut start = 0;
    let mut best = 0..0;
    for run in states.split(|&up| !up) {
        if run.len() > best.len() {
            best = start..start + run.len();
        }
        start += run.len() + 1;
    }
    Some(best).filter(|best| !best.is_empty())
}
