use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct Shared<T> {
    current: Mutex<Arc<T>>,
}

impl<T> Shared<T> {
    pub fn new(value: T) -> Self {
        Shared { current: Mutex::new(Arc::new(value)) }
    }

    /// The value is replaced in one step, so that a panic of a holder leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Arc<T>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current value.
    pub fn load(&self) -> Arc<T> {
        Arc::clone(&self.lock())
    }

    /// Replaces the current value and returns the one before.
    pub fn store(&self, value: T) -> Arc<T> {
        mem::replace(&mut *self.lock(), Arc::new(value))
    }

    /// Replaces the current value by what `change` makes of it, and returns the new one.
    pub fn update(&self, change: impl FnOnce(&T) -> T) -> Arc<T> {
        let mut current = self.lock();
        let new = Arc::new(change(&current));
        *current = Arc::clone(&new);
        new
    }
}
