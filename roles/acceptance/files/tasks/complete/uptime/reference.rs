/// A duration for people, from a number of seconds.
pub fn uptime(seconds: u64) -> String {
    let counts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let largest = counts.iter().position(|&(count, _)| count > 0).unwrap_or(3);
    let (count, unit) = counts[largest];
    match counts.get(largest + 1) {
        Some(&(next, smaller)) if next > 0 => format!("{}{} {}{}", count, unit, next, smaller),
        _ => format!("{}{}", count, unit),
    }
}
