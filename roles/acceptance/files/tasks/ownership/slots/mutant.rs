use std::sync::{Arc, Mutex};

pub struct Slots {
    free: Arc<Mutex<usize>>,
}

impl Slots {
    /// `count` slots, all of them free.
    pub fn new(count: usize) -> Self {
        Slots { free: Arc::new(Mutex::new(count)) }
    }

    /// The number of slots that are free now.
    pub fn free(&self) -> usize {
        *self.free.lock().unwrap()
    }

    /// Takes a slot, or returns None if no slot is free. Does not wait.
    pub fn take(&self) -> Option<Slot> {
        let mut free = self.free.lock().unwrap();
        *free = free.checked_sub(1)?;
        Some(Slot { home: Arc::clone(&self.free) })
    }
}

pub struct Slot {
    home: Arc<Mutex<usize>>,
}

impl Slot {
    /// Uses this slot up: it never becomes free again.
    pub fn retire(self) {}
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.home.lock().unwrap() += 1;
    }
}
