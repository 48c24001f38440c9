use answer::*;

fn queued() -> Job<Queued> {
    Job::<Queued>::new("vasp")
}

#[test]
fn job_runs_to_its_end() {
    let job = queued();
    assert_eq!((job.name(), job.attempts()), ("vasp", 0));
    let job = job.start(100);
    assert_eq!((job.name(), job.attempts()), ("vasp", 1));
    let job = job.finish(160, -9).ok().unwrap();
    assert_eq!((job.name(), job.attempts(), job.seconds(), job.code()), ("vasp", 1, 60, -9));
}

#[test]
fn attempts_are_counted() {
    let job = queued().start(1).requeue();
    assert_eq!(job.attempts(), 1);
    let job = job.start(2).requeue().start(3);
    assert_eq!((job.name(), job.attempts()), ("vasp", 3));
}

#[test]
fn last_start_counts_for_the_seconds() {
    let job = queued().start(10).requeue().start(50).finish(55, 0).ok().unwrap();
    assert_eq!((job.seconds(), job.attempts()), (5, 2));
}

#[test]
fn end_before_the_start_is_refused() {
    let job = queued().start(50).finish(49, 7).err().unwrap();
    assert_eq!((job.name(), job.attempts()), ("vasp", 1));
    let job = job.finish(50, 3).ok().unwrap();
    assert_eq!((job.seconds(), job.code()), (0, 3));
}

#[test]
fn times_may_be_large() {
    let job = queued().start(0).finish(u64::MAX, 0).ok().unwrap();
    assert_eq!(job.seconds(), u64::MAX);
}
