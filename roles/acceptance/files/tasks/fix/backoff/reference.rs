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
        let factor = 2u64.saturating_pow(attempt - 1);
        // A saturated factor stands for one that is larger than any limit.
        self.first_ms.saturating_mul(factor).min(self.limit_ms)
    }

    /// How long all attempts up to this one have waited, in milliseconds.
    pub fn total_ms(&self, attempts: u32) -> u64 {
        (0..=attempts).fold(0, |total: u64, attempt| total.saturating_add(self.delay_ms(attempt)))
    }
}
