use std::collections::HashMap;

pub trait Clock {
    /// Milliseconds since some fixed time.
    fn now_ms(&self) -> u64;
}

#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// More tokens than a full bucket has.
    TooLarge,
    /// Milliseconds until the request would be allowed if no other came.
    After(u64),
}

struct Bucket {
    tokens: u64,
    at: u64,
}

pub struct Limiter<C: Clock> {
    clock: C,
    capacity: u64,
    per_second: u64,
    buckets: HashMap<String, Bucket>,
}

fn refill(bucket: &mut Bucket, now: u64, per_second: u64, capacity: u64) {
    let gained = now.saturating_sub(bucket.at).saturating_mul(per_second) / 1000;
    bucket.tokens = bucket.tokens.saturating_add(gained).min(capacity);
    bucket.at = bucket.at.max(now);
}

impl<C: Clock> Limiter<C> {
    pub fn new(clock: C, capacity: u32, per_second: u32) -> Self {
        Limiter { clock, capacity: capacity.into(), per_second: per_second.into(), buckets: HashMap::new() }
    }

    pub fn allow(&mut self, client: &str, tokens: u32) -> Result<u32, Refused> {
        let wanted = u64::from(tokens);
        if wanted > self.capacity {
            return Err(Refused::TooLarge);
        }
        let now = self.clock.now_ms();
        let bucket = self.buckets.entry(client.to_string()).or_insert(Bucket { tokens: self.capacity, at: now });
        refill(bucket, now, self.per_second, self.capacity);
        if bucket.tokens < wanted {
            let missing = (wanted - bucket.tokens) * 1000;
            return Err(Refused::After((missing + self.per_second - 1) / self.per_second));
        }
        bucket.tokens -= wanted;
        Ok(bucket.tokens as u32)
    }

    pub fn forget_full(&mut self) -> usize {
        let (now, rate, full, before) = (self.clock.now_ms(), self.per_second, self.capacity, self.buckets.len());
        self.buckets.retain(|_, bucket| {
            refill(bucket, now, rate, full);
            bucket.tokens < full
        });
        before - self.buckets.len()
    }

    pub fn clients(&self) -> usize {
        self.buckets.len()
    }
}
