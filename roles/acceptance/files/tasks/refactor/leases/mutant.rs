use std::collections::HashMap;

pub trait Clock {
    fn now_ms(&self) -> u64;
}

pub struct Leases<C: Clock> {
    ttl_ms: u64,
    clock: C,
    held: HashMap<String, (String, u64)>,
}

impl<C: Clock> Leases<C> {
    pub fn new(ttl_ms: u64, clock: C) -> Leases<C> {
        Leases { ttl_ms, clock, held: HashMap::new() }
    }

    pub fn clock(&self) -> &C {
        &self.clock
    }

    pub fn acquire(&mut self, name: &str, owner: &str) -> bool {
        let now_ms = self.clock.now_ms();
        let ttl_ms = self.ttl_ms;
        let entry = self.held.entry(name.to_string()).or_insert_with(|| (owner.to_string(), now_ms));
        if entry.0 != owner && now_ms - entry.1 < ttl_ms {
            return false;
        }
        entry.0 = owner.to_string();
        true
    }

    pub fn release(&mut self, name: &str, owner: &str) -> bool {
        self.holder(name) == Some(owner) && self.held.remove(name).is_some()
    }

    pub fn holder(&self, name: &str) -> Option<&str> {
        let now_ms = self.clock.now_ms();
        self.held.get(name).filter(|lease| now_ms - lease.1 < self.ttl_ms).map(|lease| lease.0.as_str())
    }

    pub fn sweep(&mut self) -> usize {
        let (before, now_ms, ttl_ms) = (self.held.len(), self.clock.now_ms(), self.ttl_ms);
        self.held.retain(|_, lease| now_ms - lease.1 < ttl_ms);
        before - self.held.len()
    }
}
