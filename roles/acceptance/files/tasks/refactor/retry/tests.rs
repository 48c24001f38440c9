use answer::*;
use std::cell::RefCell;

/// The result of `manifest` (without a name) or `blob` with these answers, the names asked for, and the waits.
fn fetched(name: &str, answers: &[Result<&str, FetchError>]) -> (Result<usize, FetchError>, Vec<String>, Vec<u64>) {
    let asked = RefCell::new(Vec::new());
    let waits = RefCell::new(Vec::new());
    let get = |wanted: &str| {
        asked.borrow_mut().push(wanted.to_string());
        answers[asked.borrow().len() - 1].clone().map(str::to_string)
    };
    let sleep = |wait| waits.borrow_mut().push(wait);
    let result = if name.is_empty() { manifest(get, sleep).map(|lines| lines.len()) } else { blob(get, sleep, name) };
    (result, asked.into_inner(), waits.into_inner())
}

#[test]
fn manifest_tries_four_times() {
    let busy = [Err(FetchError::Busy), Err(FetchError::Reset), Err(FetchError::Busy), Err(FetchError::Reset)];
    let (result, asked, waits) = fetched("", &busy);
    assert_eq!(result, Err(FetchError::Reset));
    assert_eq!((asked, waits), (vec!["manifest".to_string(); 4], vec![100, 200, 300]));
}

#[test]
fn manifest_has_its_lines() {
    let (result, _, waits) = fetched("", &[Err(FetchError::Reset), Ok("a\nb\nc\n")]);
    assert_eq!((result, waits), (Ok(3), vec![100]));
}

#[test]
fn blob_tries_six_times() {
    let busy = vec![Err(FetchError::Busy); 6];
    let (result, asked, waits) = fetched("x", &busy);
    assert_eq!(result, Err(FetchError::Busy));
    assert_eq!((asked, waits), (vec!["x".to_string(); 6], vec![100, 200, 300, 300, 300]));
}

#[test]
fn blob_does_not_retry_a_reset() {
    let (result, asked, waits) = fetched("x", &[Err(FetchError::Busy), Err(FetchError::Reset)]);
    assert_eq!((result, asked.len(), waits), (Err(FetchError::Reset), 2, vec![100]));
}

#[test]
fn missing_files_are_not_retried() {
    for name in ["", "x"] {
        let (result, asked, waits) = fetched(name, &[Err(FetchError::NotFound)]);
        assert_eq!((result, asked.len(), waits.len()), (Err(FetchError::NotFound), 1, 0));
    }
}

#[test]
fn retry_takes_any_error() {
    let (mut runs, mut waits) = (0, Vec::new());
    let result: Result<i32, String> = retry(3, |error: &String| error != "stop", |wait| waits.push(wait), || {
        runs += 1;
        if runs == 3 { Ok(runs) } else { Err("go on".to_string()) }
    });
    assert_eq!((result, runs, waits), (Ok(3), 3, vec![100, 200]));
}

#[test]
fn operation_runs_at_least_once() {
    for tries in [0, 1] {
        let mut runs = 0;
        let result: Result<(), u8> = retry(tries, |_| true, |_| panic!("no wait after the last run"), || {
            runs += 1;
            Err(7)
        });
        assert_eq!((result, runs), (Err(7), 1));
    }
}
