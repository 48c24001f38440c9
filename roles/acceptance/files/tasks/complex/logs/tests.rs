use answer::*;

fn read(lines: &[&str]) -> Aggregator {
    let mut aggregator = Aggregator::new();
    lines.iter().for_each(|line| aggregator.line(line));
    aggregator
}

fn row(service: &str, counts: [u64; 3], problem: &str) -> ServiceReport {
    let [info, warn, error] = counts;
    ServiceReport { service: service.to_string(), info, warn, error, problem: problem.to_string() }
}

#[test]
fn lines_are_counted_by_level() {
    let seen = read(&["1 INFO head: up", "2 WARN head: slow: 3 s", "3 ERROR head: gone", "4 INFO head: "]);
    assert_eq!(seen.report(), [row("head", [2, 1, 1], "gone")]);
    assert_eq!(seen.skipped(), 0);
}

#[test]
fn malformed_lines_are_skipped() {
    let lines = [
        "", "1 INFO head", "x INFO head: a", "1 DEBUG head: a", "1 info head: a", " 1 INFO head: a", "1  INFO head: a",
        "1 INFO : a", "1 INFO a b: c", "1 INFO head:a", "-1 INFO head: a", "1 INFO head:", " INFO head: a",
    ];
    let seen = read(&lines);
    assert_eq!((seen.report(), seen.skipped()), (vec![], lines.len() as u64));
}

#[test]
fn numbers_in_messages_are_alike() {
    let seen = read(&["1 WARN rpc: lost worker 2", "2 WARN rpc: lost worker 12", "3 ERROR rpc: a1b22c"]);
    assert_eq!(seen.report(), [row("rpc", [0, 2, 1], "lost worker #")]);
    assert_eq!(read(&["1 ERROR rpc: a1b22c"]).report()[0].problem, "a#b#c");
}

#[test]
fn first_of_equally_frequent_problems_is_named() {
    let seen = read(&["1 WARN a: x", "2 ERROR a: b", "3 ERROR a: x", "4 WARN a: b", "5 INFO a: 0", "6 INFO a: 0"]);
    assert_eq!(seen.report(), [row("a", [2, 2, 2], "b")]);
    assert_eq!(read(&["1 INFO a: b"]).report(), [row("a", [1, 0, 0], "")]);
}

#[test]
fn repeated_lines_count_for_their_service() {
    let seen = read(&[
        "1 ERROR a: lost 7", "2 WARN b: slow", "3 INFO a: last message repeated 3 times",
        "4 INFO a: last message repeated 2 times", "5 ERROR b: last message repeated 0 times",
    ]);
    assert_eq!(seen.report(), [row("a", [0, 0, 6], "lost #"), row("b", [0, 1, 0], "slow")]);
}

#[test]
fn repetition_of_nothing_is_skipped() {
    let seen = read(&["1 INFO a: up", "2 INFO b: last message repeated 3 times"]);
    assert_eq!((seen.report(), seen.skipped()), (vec![row("a", [1, 0, 0], "")], 1));
}

#[test]
fn other_repetitions_are_messages() {
    let seen = read(&[
        "1 WARN a: last message repeated x times", "2 WARN a: last message repeated  times",
        "3 WARN a: last message repeated 4294967296 times", "4 WARN a: last message repeated +1 times",
    ]);
    assert_eq!((seen.report()[0].warn, seen.skipped()), (4, 0));
}

#[test]
fn services_with_most_errors_come_first() {
    let seen = read(&["1 ERROR c: x", "2 INFO b: x", "3 ERROR d: x", "4 ERROR d: y", "5 WARN a: x"]);
    let names: Vec<String> = seen.report().into_iter().map(|row| row.service).collect();
    assert_eq!(names, ["d", "c", "a", "b"]);
}
