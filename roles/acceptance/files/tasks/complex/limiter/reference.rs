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

/// A thousandth of a token is the unit: a bucket gains `per_second` of them each millisecond.
struct Bucket {
    level: u64,
    at: u64,
}

pub struct Limiter<C: Clock> {
    clock: C,
    full: u64,
    rate: u64,
    buckets: HashMap<String, Bucket>,
}

fn refill(bucket: &mut Bucket, now: u64, rate: u64, full: u64) {
    let gained = now.saturating_sub(bucket.at).saturating_mul(rate);
    bucket.level = bucket.level.saturating_add(gained).min(full);
    bucket.at = bucket.at.max(now);
}

impl<C: Clock> Limiter<C> {
    pub fn new(clock: C, capacity: u32, per_second: u32) -> Self {
        let (full, rate) = (u64::from(capacity) * 1000, u64::from(per_second));
        Limiter { clock, full, rate, buckets: HashMap::new() }
    }

    pub fn allow(&mut self, client: &str, tokens: u32) -> Result<u32, Refused> {
        let wanted = u64::from(tokens) * 1000;
        if wanted > self.full {
            return Err(Refused::TooLarge);
        }
        let now = self.clock.now_ms();
        let bucket = self.buckets.entry(client.to_string()).or_insert(Bucket { level: self.full, at: now });
        refill(bucket, now, self.rate, self.full);
        if bucket.level < wanted {
            let missing = wanted - bucket.level;
            return Err(Refused::After((missing + self.rate - 1) / self.rate));
        }
        bucket.level -= wanted;
        Ok((bucket.level / 1000) as u32)
    }

    pub fn forget_full(&mut self) -> usize {
        let (now, rate, full, before) = (self.clock.now_ms(), self.rate, self.full, self.buckets.len());
        self.buckets.retain(|_, bucket| {
            refill(bucket, now, rate, full);
            bucket.level < full
        });
        before - self.buckets.len()
    }

    pub fn clients(&self) -> usize {
        self.buckets.len()
    }
}
