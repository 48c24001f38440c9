use std::cell::RefCell;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

struct Idle {
    limit: usize,
    bytes: RefCell<Vec<Vec<u8>>>,
}

pub struct Buffers {
    idle: Rc<Idle>,
}

impl Buffers {
    /// A pool that keeps at most `limit` idle buffers. It begins without any.
    pub fn new(limit: usize) -> Self {
        Buffers { idle: Rc::new(Idle { limit, bytes: RefCell::default() }) }
    }

    /// An empty buffer: the one that became idle last, or a new one if none is idle.
    pub fn take(&self) -> Buffer {
        let bytes = self.idle.bytes.borrow_mut().pop().unwrap_or_default();
        Buffer { bytes, home: Some(Rc::clone(&self.idle)) }
    }

    /// The number of idle buffers.
    pub fn idle(&self) -> usize {
        self.idle.bytes.borrow().len()
    }
}

pub struct Buffer {
    bytes: Vec<u8>,
    home: Option<Rc<Idle>>,
}

impl Buffer {
    /// Gives the bytes away. They do not return to the pool.
    pub fn into_vec(mut self) -> Vec<u8> {
        self.home = None;
        mem::take(&mut self.bytes)
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            let mut idle = home.bytes.borrow_mut();
            if idle.len() < home.limit {
                self.bytes.clear();
                idle.push(mem::take(&mut self.bytes));
            }
        }
    }
}
