use answer::*;

fn main() {
    let mut node = Node::<Up>::new("vasp-02");
    node.start(1);
    if let Drained::Busy(mut draining) = node.drain() {
        draining.start(2);
    }
}
