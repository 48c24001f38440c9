fn port(text: &str) -> Option<u16> {
    let digits = text.trim();
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|&port| port > 0)
}

pub fn parse_ports(text: &str) -> Option<Vec<(u16, u16)>> {
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut given = Vec::new();
    for item in text.split(',') {
        let (first, last) = match item.split_once('-') {
            Some((first, last)) => (port(first)?, port(last)?),
            None => (port(item)?, port(item)?),
        };
        if first > last {
            return None;
        }
        given.push((first, last));
    }
    given.sort_unstable();
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for (first, last) in given {
        match ranges.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = last,
            _ => ranges.push((first, last)),
        }
    }
    Some(ranges)
}
