use answer::*;

fn main() {
    let job = Job::<Queued>::new("vasp");
    let _first = job.start(1);
    let _second = job.start(2);
}
