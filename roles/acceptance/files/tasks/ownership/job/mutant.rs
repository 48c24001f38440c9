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
    fn take(&mut self) -> Job {
        mem::replace(self, Job::Done(Payload(Vec::new())))
    }

    pub fn start(&mut self) -> bool {
        if let Job::Queued(payload) = self.take() {
            *self = Job::Running { payload, tries: 1 };
            return true;
        }
        false
    }

    pub fn fail(&mut self, limit: u32) -> bool {
        if let Job::Running { payload, tries } = self.take() {
            *self = if tries < limit {
                Job::Running { payload, tries: tries + 1 }
            } else {
                Job::Failed { payload, tries }
            };
            return true;
        }
        false
    }

    pub fn finish(&mut self) -> bool {
        if let Job::Running { payload, .. } = self.take() {
            *self = Job::Done(payload);
            return true;
        }
        false
    }

    pub fn into_payload(self) -> Payload {
        match self {
            Job::Queued(payload) | Job::Done(payload) => payload,
            Job::Running { payload, .. } | Job::Failed { payload, .. } => payload,
        }
    }
}
