use answer::*;

fn payload() -> Payload {
    Payload(vec![1, 2, 3])
}

#[test]
fn job_runs_and_is_done() {
    let mut job = Job::Queued(payload());
    assert!(job.start());
    assert_eq!(job, Job::Running { payload: payload(), tries: 1 });
    assert!(job.finish());
    assert_eq!(job, Job::Done(payload()));
}

#[test]
fn job_fails_at_its_limit() {
    let mut job = Job::Queued(payload());
    job.start();
    assert!(job.fail(3) && job.fail(3));
    assert_eq!(job, Job::Running { payload: payload(), tries: 3 });
    assert!(job.fail(3));
    assert_eq!(job, Job::Failed { payload: payload(), tries: 3 });
}

#[test]
fn lowered_limit_fails_at_once() {
    let mut job = Job::Running { payload: payload(), tries: 5 };
    assert!(job.fail(2));
    assert_eq!(job, Job::Failed { payload: payload(), tries: 5 });
    let mut job = Job::Running { payload: payload(), tries: 1 };
    assert!(job.fail(0));
    assert_eq!(job, Job::Failed { payload: payload(), tries: 1 });
}

#[test]
fn wrong_states_stay_as_they_are() {
    let mut queued = Job::Queued(payload());
    assert!(!queued.finish() && !queued.fail(9));
    assert_eq!(queued, Job::Queued(payload()));
    let mut running = Job::Running { payload: payload(), tries: 2 };
    assert!(!running.start());
    assert_eq!(running, Job::Running { payload: payload(), tries: 2 });
    let mut done = Job::Done(payload());
    assert!(!done.start() && !done.fail(9) && !done.finish());
    assert_eq!(done, Job::Done(payload()));
    let mut failed = Job::Failed { payload: payload(), tries: 4 };
    assert!(!failed.start() && !failed.fail(9) && !failed.finish());
    assert_eq!(failed, Job::Failed { payload: payload(), tries: 4 });
}

#[test]
fn every_state_gives_its_payload() {
    let states = [
        Job::Queued(payload()),
        Job::Running { payload: payload(), tries: 1 },
        Job::Done(payload()),
        Job::Failed { payload: payload(), tries: 2 },
    ];
    for job in states {
        assert_eq!(job.into_payload(), payload());
    }
}

#[test]
fn payload_is_moved_and_not_copied() {
    let bytes = vec![9; 1000];
    let address = bytes.as_ptr();
    let mut job = Job::Queued(Payload(bytes));
    job.finish();
    job.start();
    job.fail(5);
    job.fail(2);
    job.start();
    let Payload(bytes) = job.into_payload();
    assert_eq!((bytes.as_ptr(), bytes.len()), (address, 1000));
}
