pub struct Backoff {
    pub first_ms: u64,
    pub limit_ms: u64,
}

impl Backoff {
    /// How long to wait before this attempt, in milliseconds.
    pub fn delay_ms(&self, attempt: u32) -> u64 {
        if attempt == 0 {
            return 0;
        }
        self.first_ms.checked_shl(attempt - 1).unwrap_or(self.limit_ms).min(self.limit_ms)
    }

    /// How long all attempts up to this one have waited, in milliseconds.
    pub fn total_ms(&self, attempts: u32) -> u64 {
        (0..=attempts).fold(0, |total: u64, attempt| total.saturating_add(self.delay_ms(attempt)))
    }
}
