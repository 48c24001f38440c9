use std::collections::VecDeque;

#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    pub id: u32,
}

pub fn steal(queues: &mut [VecDeque<Job>], from: usize, to: usize) -> usize {
    if from == to || from >= queues.len() || to >= queues.len() {
        return 0;
    }
    let (low, high) = queues.split_at_mut(from.max(to));
    let (source, target) = (&mut low[from.min(to)], &mut high[0]);
    let count = source.len() / 2;
    let keep = source.len() - count;
    target.extend(source.drain(keep..));
    count
}
