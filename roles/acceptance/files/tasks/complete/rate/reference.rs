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
        if self.wait_ms(now_ms) != Some(0) {
            return false;
        }
        if self.allowed.len() == self.limit {
            self.allowed.pop_front();
        }
        self.allowed.push_back(now_ms);
        true
    }

    /// How many milliseconds after `now_ms` the next event will be allowed.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        if self.limit == 0 {
            return None;
        }
        if self.allowed.len() < self.limit {
            return Some(0);
        }
        // Full: the next one has to wait for the oldest.
        let age = now_ms - self.allowed.front()?;
        Some(self.window_ms.saturating_sub(age))
    }
}
