#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub name: String,
    pub start: u64,
    pub end: u64,
    pub priority: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub name: String,
    pub start: u64,
    pub end: u64,
}

pub fn flatten(windows: &[Window]) -> Vec<Segment> {
    let covering = || windows.iter().filter(|window| window.start < window.end);
    let mut limits: Vec<u64> = covering().flat_map(|window| [window.start, window.end]).collect();
    limits.sort_unstable();
    limits.dedup();
    let mut segments: Vec<Segment> = Vec::new();
    for pair in limits.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        let here = covering().filter(|window| window.start <= start && end <= window.end);
        let winner = match here.max_by_key(|window| (window.priority, u64::MAX - window.start)) {
            Some(winner) => winner,
            None => continue,
        };
        match segments.last_mut() {
            Some(last) if last.end == start && last.name == winner.name => last.end = end,
            _ => segments.push(Segment { name: winner.name.clone(), start, end }),
        }
    }
    segments
}
