/// A duration for people, from a number of seconds.
pub fn uptime(seconds: u64) -> String {
    let counts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let shown: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .take(2)
        .map(|(count, unit)| format!("{}{}", count, unit))
        .collect();
    if shown.is_empty() {
        "0s".to_string()
    } else {
        shown.join(" ")
    }
}
