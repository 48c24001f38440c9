use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Pending,
    Running,
    Done,
    Failed,
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Start,
    Finish,
    Fail,
    Lose,
    Cancel,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEvent(pub String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayError {
    Unknown { line: usize, event: String },
    NotAllowed { line: usize, state: State, event: Event },
}

impl State {
    pub fn on(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Pending | State::Running, Event::Cancel) => Some(State::Cancelled),
            (State::Pending | State::Failed, Event::Start) => Some(State::Running),
            (State::Pending | State::Running, Event::Lose) => Some(State::Pending),
            (State::Running, Event::Finish) => Some(State::Done),
            (State::Running, Event::Fail) => Some(State::Failed),
            _ => None,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Pending => "pending",
            State::Running => "running",
            State::Done => "done",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        })
    }
}

impl FromStr for Event {
    type Err = UnknownEvent;

    fn from_str(text: &str) -> Result<Event, UnknownEvent> {
        Ok(match text {
            "start" => Event::Start,
            "finish" => Event::Finish,
            "fail" => Event::Fail,
            "lose" => Event::Lose,
            "cancel" => Event::Cancel,
            other => return Err(UnknownEvent(other.to_string())),
        })
    }
}

pub fn replay(log: &str) -> Result<State, ReplayError> {
    let mut events = log.lines().map(str::trim).zip(1..).filter(|(text, _)| !text.is_empty());
    events.try_fold(State::Pending, |state, (text, line)| {
        let event = text.parse().map_err(|UnknownEvent(event)| ReplayError::Unknown { line, event })?;
        state.on(event).ok_or(ReplayError::NotAllowed { line, state, event })
    })
}
