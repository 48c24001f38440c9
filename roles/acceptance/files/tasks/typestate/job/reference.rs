pub struct Queued;

pub struct Running {
    since: u64,
}

pub struct Finished {
    seconds: u64,
    code: i32,
}

pub struct Job<S> {
    name: String,
    attempts: u32,
    state: S,
}

impl<S> Job<S> {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl Job<Queued> {
    pub fn new(name: &str) -> Job<Queued> {
        Job { name: name.to_string(), attempts: 0, state: Queued }
    }

    pub fn start(self, at: u64) -> Job<Running> {
        Job { name: self.name, attempts: self.attempts + 1, state: Running { since: at } }
    }
}

impl Job<Running> {
    pub fn requeue(self) -> Job<Queued> {
        Job { name: self.name, attempts: self.attempts, state: Queued }
    }

    pub fn finish(self, at: u64, code: i32) -> Result<Job<Finished>, Job<Running>> {
        match at.checked_sub(self.state.since) {
            Some(seconds) => Ok(Job { name: self.name, attempts: self.attempts, state: Finished { seconds, code } }),
            None => Err(self),
        }
    }
}

impl Job<Finished> {
    pub fn seconds(&self) -> u64 {
        self.state.seconds
    }

    pub fn code(&self) -> i32 {
        self.state.code
    }
}
