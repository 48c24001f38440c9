use std::collections::VecDeque;

/// Allows at most `limit` events in any `window_ms` milliseconds.
pub struct Window {
    limit: usize,
    window_ms: u64,
    allowed: VecDeque<u64>,
}

impl Window {
    pub fn new(limit: usize, window_ms: u64) -> Window {
        Window { limit, window_ms, allowed: VecDeque::new() }
    }

    /// Whether an event at `now_ms` is allowed; if it is, it counts from now on.
    pub fn allow(&mut self, now_ms: u64) -> bool {
        while self.allowed.front().map_or(false, |&time| now_ms - time > self.window_ms) {
            self.allowed.pop_front();
        }
        let fits = self.allowed.len() < self.limit;
        if fits {
            self.allowed.push_back(now_ms);
        }
        fits
    }

    /// How many milliseconds after `now_ms` the next event will be allowed.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        if self.limit == 0 {
            return None;
        }
        let counted: Vec<u64> =
            self.allowed.iter().copied().filter(|time| now_ms - time < self.window_ms).collect();
        if counted.len() < self.limit {
            return Some(0);
        }
        Some(self.window_ms - (now_ms - counted[0]))
    }
}
