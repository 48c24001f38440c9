use std::cmp::Reverse;
use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Eq)]
pub struct ServiceReport {
    pub service: String,
    pub info: u64,
    pub warn: u64,
    pub error: u64,
    pub problem: String,
}

#[derive(Clone, Copy)]
enum Level {
    Info,
    Warn,
    Error,
}

struct Service {
    counts: [u64; 3],
    problems: BTreeMap<String, u64>,
    latest: (Level, String),
}

impl Service {
    fn add(&mut self, times: u64) {
        let (level, message) = &self.latest;
        self.counts[*level as usize] += times;
        if !matches!(level, Level::Info) {
            *self.problems.entry(message.clone()).or_default() += times;
        }
    }
}

#[derive(Default)]
pub struct Aggregator {
    skipped: u64,
    services: BTreeMap<String, Service>,
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn parse(line: &str) -> Option<(Level, &str, &str)> {
    let (time, rest) = line.split_once(' ')?;
    let (level, rest) = rest.split_once(' ')?;
    let (service, message) = rest.split_once(": ")?;
    let level = match level {
        "INFO" => Level::Info,
        "WARN" => Level::Warn,
        "ERROR" => Level::Error,
        _ => return None,
    };
    let named = !service.is_empty() && !service.contains([' ', ':']);
    (named && is_number(time)).then_some((level, service, message))
}

fn repetitions(message: &str) -> Option<u64> {
    let times = message.strip_prefix("last message repeated ")?.strip_suffix(" times")?;
    if !is_number(times) {
        return None;
    }
    times.parse::<u32>().ok().map(u64::from)
}

fn normal(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut in_number = false;
    for c in message.chars() {
        let digit = c.is_ascii_digit();
        if !digit {
            text.push(c);
        } else if !in_number {
            text.push('#');
        }
        in_number = digit;
    }
    text
}

impl Aggregator {
    pub fn new() -> Self {
        Aggregator::default()
    }

    pub fn line(&mut self, line: &str) {
        let (level, name, message) = match parse(line) {
            Some(parts) => parts,
            None => {
                self.skipped += 1;
                return;
            }
        };
        match (repetitions(message), self.services.get_mut(name)) {
            (Some(times), Some(service)) => service.add(times),
            (Some(_), None) => self.skipped += 1,
            (None, Some(service)) => {
                service.latest = (level, normal(message));
                service.add(1);
            }
            (None, None) => {
                let latest = (level, normal(message));
                let mut service = Service { counts: [0; 3], problems: BTreeMap::new(), latest };
                service.add(1);
                self.services.insert(name.to_string(), service);
            }
        }
    }

    /// The number of lines that could not be read.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    pub fn report(&self) -> Vec<ServiceReport> {
        let rows = self.services.iter().map(|(name, service)| {
            let [info, warn, error] = service.counts;
            // min_by_key returns the first of equally frequent ones, and the map is sorted.
            let problem = service.problems.iter().min_by_key(|(_, count)| Reverse(**count));
            let problem = problem.map_or_else(String::new, |(message, _)| message.clone());
            ServiceReport { service: name.clone(), info, warn, error, problem }
        });
        let mut rows: Vec<ServiceReport> = rows.collect();
        rows.sort_by_key(|row| Reverse(row.error));
        rows
    }
}
