use std::collections::{BTreeMap, HashMap, HashSet};

pub struct Policy {
    pub base_ms: u64,
    pub cap_ms: u64,
    pub max_tries: u32,
}

pub struct Scheduler {
    policy: Policy,
    turn: u64,
    /// By time and turn: the id, and the tries that it has had.
    waiting: BTreeMap<(u64, u64), (String, u32)>,
    /// The tries of what runs, the current one included.
    running: HashMap<String, u32>,
    known: HashSet<String>,
    dead: Vec<String>,
}

impl Scheduler {
    pub fn new(policy: Policy) -> Self {
        let (waiting, running, known) = (BTreeMap::new(), HashMap::new(), HashSet::new());
        Scheduler { policy, turn: 0, waiting, running, known, dead: Vec::new() }
    }

    fn wait(&mut self, id: &str, at: u64, tries: u32) {
        self.turn += 1;
        self.waiting.insert((at, self.turn), (id.to_string(), tries));
    }

    pub fn submit(&mut self, id: &str, at: u64) -> bool {
        let new = self.known.insert(id.to_string());
        if new {
            self.wait(id, at, 0);
        }
        new
    }

    pub fn due(&mut self, now: u64) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some((&(at, turn), _)) = self.waiting.iter().next() {
            if at > now {
                break;
            }
            if let Some((id, tries)) = self.waiting.remove(&(at, turn)) {
                self.running.insert(id.clone(), tries + 1);
                ids.push(id);
            }
        }
        ids
    }

    pub fn failed(&mut self, id: &str, now: u64) -> Option<u64> {
        let tries = self.running.remove(id)?;
        if tries >= self.policy.max_tries {
            self.known.remove(id);
            self.dead.push(id.to_string());
            return None;
        }
        let factor = 1u64.checked_shl(tries).unwrap_or(u64::MAX);
        let delay = self.policy.base_ms.saturating_mul(factor).min(self.policy.cap_ms);
        let at = now.saturating_add(delay);
        self.wait(id, at, tries);
        Some(at)
    }

    pub fn succeeded(&mut self, id: &str) -> bool {
        self.running.remove(id).is_some() && self.known.remove(id)
    }

    pub fn next_at(&self) -> Option<u64> {
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    pub fn dead(&self) -> &[String] {
        &self.dead
    }
}
