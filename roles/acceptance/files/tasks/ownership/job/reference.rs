use std::mem;

#[derive(Debug, PartialEq, Eq)]
pub struct Payload(pub Vec<u8>);

#[derive(Debug, PartialEq, Eq)]
pub enum Job {
    Queued(Payload),
    Running { payload: Payload, tries: u32 },
    Done(Payload),
    Failed { payload: Payload, tries: u32 },
}

impl Job {
    /// Takes the job out from behind the reference, and leaves an empty one that is overwritten at once.
    fn take(&mut self) -> Job {
        mem::replace(self, Job::Done(Payload(Vec::new())))
    }

    /// Puts the next state of `step` in place: Ok if there is one, Err if the job stays as it is.
    fn advance(&mut self, step: impl FnOnce(Job) -> Result<Job, Job>) -> bool {
        let next = step(self.take());
        let moved = next.is_ok();
        *self = next.unwrap_or_else(|same| same);
        moved
    }

    pub fn start(&mut self) -> bool {
        self.advance(|job| match job {
            Job::Queued(payload) => Ok(Job::Running { payload, tries: 1 }),
            other => Err(other),
        })
    }

    pub fn fail(&mut self, limit: u32) -> bool {
        self.advance(|job| match job {
            Job::Running { payload, tries } if tries < limit => Ok(Job::Running { payload, tries: tries + 1 }),
            Job::Running { payload, tries } => Ok(Job::Failed { payload, tries }),
            other => Err(other),
        })
    }

    pub fn finish(&mut self) -> bool {
        self.advance(|job| match job {
            Job::Running { payload, .. } => Ok(Job::Done(payload)),
            other => Err(other),
        })
    }

    pub fn into_payload(self) -> Payload {
        match self {
            Job::Queued(payload) | Job::Done(payload) => payload,
            Job::Running { payload, .. } | Job::Failed { payload, .. } => payload,
        }
    }
}
