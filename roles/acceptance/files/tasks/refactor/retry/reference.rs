#[derive(Debug, Clone, PartialEq)]
pub enum FetchError {
    NotFound,
    Busy,
    Reset,
}

pub fn manifest(
    mut get: impl FnMut(&str) -> Result<String, FetchError>,
    sleep: impl FnMut(u64),
) -> Result<Vec<String>, FetchError> {
    let text = retry(4, |error| *error != FetchError::NotFound, sleep, || get("manifest"))?;
    Ok(text.lines().map(str::to_string).collect())
}

pub fn blob(
    mut get: impl FnMut(&str) -> Result<String, FetchError>,
    sleep: impl FnMut(u64),
    name: &str,
) -> Result<usize, FetchError> {
    let text = retry(6, |error| *error == FetchError::Busy, sleep, || get(name))?;
    Ok(text.len())
}

/// Runs `operation` until it succeeds, fails with an error that is not `transient`, or has failed `tries` times.
pub fn retry<T, E>(
    tries: u32,
    transient: impl Fn(&E) -> bool,
    mut sleep: impl FnMut(u64),
    mut operation: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut wait = 100;
    for _ in 1..tries {
        match operation() {
            Err(error) if transient(&error) => {
                sleep(wait);
                wait = 300.min(wait * 2);
            }
            result => return result,
        }
    }
    operation()
}
