#[derive(Default)]
pub struct Cleanup {
    actions: Vec<Box<dyn FnOnce()>>,
}

impl Cleanup {
    pub fn new() -> Self {
        Cleanup::default()
    }

    /// Adds an action.
    pub fn push(&mut self, action: impl FnOnce() + 'static) {
        self.actions.push(Box::new(action));
    }

    /// The number of actions that have been added.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Calls all actions now.
    pub fn run(self) {
        drop(self);
    }

    /// Drops all actions without calling them.
    pub fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        while let Some(action) = self.actions.pop() {
            action();
        }
    }
}
