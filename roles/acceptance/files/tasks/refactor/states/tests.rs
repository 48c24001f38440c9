use answer::*;

const STATES: [State; 5] = [State::Pending, State::Running, State::Done, State::Failed, State::Cancelled];

fn after(event: Event) -> Vec<Option<State>> {
    STATES.iter().map(|state| state.on(event)).collect()
}

#[test]
fn transitions_are_the_old_ones() {
    assert_eq!(after(Event::Start), [Some(State::Running), None, None, Some(State::Running), None]);
    assert_eq!(after(Event::Finish), [None, Some(State::Done), None, None, None]);
    assert_eq!(after(Event::Fail), [None, Some(State::Failed), None, None, None]);
    assert_eq!(after(Event::Lose), [Some(State::Pending), Some(State::Pending), None, None, None]);
}

#[test]
fn ended_jobs_are_not_cancelled() {
    assert_eq!(after(Event::Cancel), [Some(State::Cancelled), Some(State::Cancelled), None, None, None]);
}

#[test]
fn names_are_the_old_ones() {
    let names: Vec<String> = STATES.iter().map(State::to_string).collect();
    assert_eq!(names, ["pending", "running", "done", "failed", "cancelled"]);
    let events: Vec<Event> = "start finish fail lose cancel".split(' ').map(|name| name.parse().unwrap()).collect();
    assert_eq!(events, [Event::Start, Event::Finish, Event::Fail, Event::Lose, Event::Cancel]);
    for other in ["Start", "", "start "] {
        assert_eq!(other.parse::<Event>(), Err(UnknownEvent(other.to_string())));
    }
}

#[test]
fn log_is_replayed() {
    assert_eq!(replay(""), Ok(State::Pending));
    assert_eq!(replay("start\r\n  lose\n\nstart\nfail\n\tstart\nfinish"), Ok(State::Done));
    assert_eq!(replay("lose\ncancel\n"), Ok(State::Cancelled));
}

#[test]
fn forbidden_event_is_named() {
    let wanted = ReplayError::NotAllowed { line: 4, state: State::Done, event: Event::Start };
    assert_eq!(replay("start\n\nfinish\nstart\nxyz"), Err(wanted));
    let first = ReplayError::NotAllowed { line: 1, state: State::Pending, event: Event::Finish };
    assert_eq!(replay("finish"), Err(first));
}

#[test]
fn unknown_event_is_named() {
    let wanted = ReplayError::Unknown { line: 3, event: "stop it".to_string() };
    assert_eq!(replay("\nstart\n stop it \nfinish\nfinish"), Err(wanted));
}
