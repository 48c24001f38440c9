pub struct Recent {
    samples: Vec<u32>,
    capacity: usize,
    /// The oldest sample of a full buffer, which the next one replaces.
    next: usize,
}

impl Recent {
    pub fn new(capacity: usize) -> Recent {
        Recent { samples: Vec::with_capacity(capacity), capacity, next: 0 }
    }

    pub fn push(&mut self, sample: u32) {
        if self.samples.len() < self.capacity {
            self.samples.push(sample);
        } else if self.capacity > 0 {
            self.samples[self.next] = sample;
            self.next = (self.next + 1) % self.capacity;
        }
    }

    pub fn values(&self) -> Vec<u32> {
        let (newer, older) = self.samples.split_at(self.next);
        [older, newer].concat()
    }

    pub fn newest(&self) -> Option<u32> {
        match self.next {
            0 => self.samples.last().copied(),
            next => Some(self.samples[next - 1]),
        }
    }
}
