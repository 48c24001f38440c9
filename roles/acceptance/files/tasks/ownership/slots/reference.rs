use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

pub struct Slots {
    free: Arc<AtomicUsize>,
}

impl Slots {
    /// `count` slots, all of them free.
    pub fn new(count: usize) -> Self {
        Slots { free: Arc::new(AtomicUsize::new(count)) }
    }

    /// The number of slots that are free now.
    pub fn free(&self) -> usize {
        self.free.load(Ordering::SeqCst)
    }

    /// Takes a slot, or returns None if no slot is free. Does not wait.
    pub fn take(&self) -> Option<Slot> {
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| free.checked_sub(1)).ok()?;
        Some(Slot { home: Some(Arc::clone(&self.free)) })
    }
}

pub struct Slot {
    home: Option<Arc<AtomicUsize>>,
}

impl Slot {
    /// Uses this slot up: it never becomes free again.
    pub fn retire(mut self) {
        self.home = None;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.fetch_add(1, Ordering::SeqCst);
        }
    }
}
