use std::mem;
use std::sync::{Arc, RwLock};

pub struct Shared<T> {
    current: RwLock<Arc<T>>,
}

impl<T> Shared<T> {
    pub fn new(value: T) -> Self {
        Shared { current: RwLock::new(Arc::new(value)) }
    }

    /// The current value.
    pub fn load(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap())
    }

    /// Replaces the current value and returns the one before.
    pub fn store(&self, value: T) -> Arc<T> {
        mem::replace(&mut *self.current.write().unwrap(), Arc::new(value))
    }

    /// Replaces the current value by what `change` makes of it, and returns the new one.
    pub fn update(&self, change: impl FnOnce(&T) -> T) -> Arc<T> {
        let mut current = self.current.write().unwrap();
        let new = Arc::new(change(&current));
        *current = Arc::clone(&new);
        new
    }
}
