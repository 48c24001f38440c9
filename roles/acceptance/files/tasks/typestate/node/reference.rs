use std::marker::PhantomData;

pub struct Up;
pub struct Draining;
pub struct Down;

pub struct Node<S> {
    name: String,
    jobs: Vec<u32>,
    state: PhantomData<S>,
}

pub enum Drained {
    Busy(Node<Draining>),
    Empty(Node<Down>),
}

impl<S> Node<S> {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn jobs(&self) -> &[u32] {
        &self.jobs
    }

    fn forget(&mut self, job: u32) -> bool {
        let before = self.jobs.len();
        self.jobs.retain(|&other| other != job);
        self.jobs.len() < before
    }

    fn into_state<T>(self) -> Node<T> {
        Node { name: self.name, jobs: self.jobs, state: PhantomData }
    }

    fn drained(self) -> Drained {
        if self.jobs.is_empty() {
            Drained::Empty(self.into_state())
        } else {
            Drained::Busy(self.into_state())
        }
    }
}

impl Node<Up> {
    pub fn new(name: &str) -> Node<Up> {
        Node { name: name.to_string(), jobs: Vec::new(), state: PhantomData }
    }

    pub fn start(&mut self, job: u32) -> bool {
        if self.jobs.contains(&job) {
            return false;
        }
        self.jobs.push(job);
        true
    }

    pub fn finish(&mut self, job: u32) -> bool {
        self.forget(job)
    }

    pub fn drain(self) -> Drained {
        self.drained()
    }
}

impl Node<Draining> {
    pub fn end(mut self, job: u32) -> Drained {
        self.forget(job);
        self.drained()
    }

    pub fn cancel(self) -> Node<Up> {
        self.into_state()
    }
}

impl Node<Down> {
    pub fn power_on(self) -> Node<Up> {
        self.into_state()
    }
}
