use std::collections::HashMap;

/// Milliseconds of a clock that never goes back.
pub trait Clock {
    fn now_ms(&self) -> u64;
}

struct Lease {
    holder: String,
    since_ms: u64,
}

pub struct Leases<C: Clock> {
    ttl_ms: u64,
    clock: C,
    held: HashMap<String, Lease>,
}

impl<C: Clock> Leases<C> {
    pub fn new(ttl_ms: u64, clock: C) -> Leases<C> {
        Leases { ttl_ms, clock, held: HashMap::new() }
    }

    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Whether this owner has the lease now. A holder who asks again renews it.
    pub fn acquire(&mut self, name: &str, owner: &str) -> bool {
        if self.holder(name).map_or(false, |holder| holder != owner) {
            return false;
        }
        let lease = Lease { holder: owner.to_string(), since_ms: self.clock.now_ms() };
        self.held.insert(name.to_string(), lease);
        true
    }

    /// Whether there was something to release: only its holder can, and not after its end.
    pub fn release(&mut self, name: &str, owner: &str) -> bool {
        self.holder(name) == Some(owner) && self.held.remove(name).is_some()
    }

    pub fn holder(&self, name: &str) -> Option<&str> {
        let now_ms = self.clock.now_ms();
        self.held.get(name).filter(|lease| now_ms - lease.since_ms < self.ttl_ms).map(|lease| lease.holder.as_str())
    }

    /// Forgets the leases that have ended, and returns how many these were.
    pub fn sweep(&mut self) -> usize {
        let (before, now_ms, ttl_ms) = (self.held.len(), self.clock.now_ms(), self.ttl_ms);
        self.held.retain(|_, lease| now_ms - lease.since_ms < ttl_ms);
        before - self.held.len()
    }
}
