use std::collections::{HashMap, HashSet};

pub struct Monitor {
    limits: HashMap<String, u64>,
    samples: Vec<(String, u64)>,
    raised: HashSet<String>,
    alerts: Vec<String>,
}

impl Monitor {
    pub fn new(limits: &[(&str, u64)]) -> Self {
        let limits = limits.iter().map(|(name, limit)| (name.to_string(), *limit)).collect();
        Monitor { limits, samples: Vec::new(), raised: HashSet::new(), alerts: Vec::new() }
    }

    pub fn sample(&mut self, name: &str, value: u64) {
        self.samples.push((name.to_string(), value));
    }

    pub fn check(&mut self) -> usize {
        let before = self.alerts.len();
        for (name, value) in self.samples.clone() {
            match self.limits.get(&name).copied() {
                Some(limit) if value > limit => self.raise(name, value, limit),
                Some(_) => {
                    self.raised.remove(&name);
                }
                None => {}
            }
        }
        self.alerts.len() - before
    }

    fn raise(&mut self, name: String, value: u64, limit: u64) {
        let alert = format!("{name}: {value} over {limit}");
        if self.raised.insert(name) {
            self.alerts.push(alert);
        }
    }

    pub fn alerts(&self) -> &[String] {
        &self.alerts
    }
}
