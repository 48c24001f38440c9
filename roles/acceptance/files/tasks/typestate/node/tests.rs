use answer::*;

fn with(jobs: &[u32]) -> Node<Up> {
    let mut node = Node::<Up>::new("vasp-02");
    for job in jobs {
        assert!(node.start(*job));
    }
    node
}

fn busy(drained: Drained) -> Node<Draining> {
    match drained {
        Drained::Busy(node) => node,
        Drained::Empty(node) => panic!("{} is empty", node.name()),
    }
}

fn empty(drained: Drained) -> Node<Down> {
    match drained {
        Drained::Empty(node) => node,
        Drained::Busy(node) => panic!("{} runs {:?}", node.name(), node.jobs()),
    }
}

#[test]
fn jobs_start_and_finish() {
    let mut node = with(&[7, 3, 9]);
    assert!(!node.start(3));
    assert_eq!((node.name(), node.jobs()), ("vasp-02", &[7, 3, 9][..]));
    assert!(node.finish(7) && !node.finish(7));
    assert_eq!(node.jobs(), [3, 9]);
}

#[test]
fn idle_node_is_down_at_once() {
    let node = empty(with(&[]).drain());
    assert_eq!((node.name(), node.jobs().len()), ("vasp-02", 0));
}

#[test]
fn busy_node_is_down_after_its_last_job() {
    let node = busy(with(&[1, 2]).drain());
    assert_eq!((node.name(), node.jobs()), ("vasp-02", &[1, 2][..]));
    let node = busy(node.end(1));
    assert_eq!(node.jobs(), [2]);
    assert!(empty(node.end(2)).jobs().is_empty());
}

#[test]
fn unknown_job_ends_nothing() {
    let node = busy(with(&[1]).drain());
    assert_eq!(busy(node.end(5)).jobs(), [1]);
}

#[test]
fn cancelled_draining_keeps_the_jobs() {
    let node = busy(with(&[1, 2, 3]).drain());
    let mut node = busy(node.end(2)).cancel();
    assert_eq!(node.jobs(), [1, 3]);
    assert!(node.start(2));
    assert_eq!(node.jobs(), [1, 3, 2]);
}

#[test]
fn node_is_powered_on_again() {
    let node = busy(with(&[1]).drain());
    let mut node = empty(node.end(1)).power_on();
    assert_eq!((node.name(), node.jobs().len()), ("vasp-02", 0));
    assert!(node.start(1));
}
