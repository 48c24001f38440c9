use std::collections::BTreeMap;

/// What is known of a node: "disk_free_gb" -> "120", "port:8000" -> "used".
pub type Facts = BTreeMap<String, String>;

pub trait Check {
    fn name(&self) -> String;

    /// None if all is well.
    fn problem(&self, facts: &Facts) -> Option<String>;
}

pub struct DiskFree {
    pub gigabytes: u64,
}

impl Check for DiskFree {
    fn name(&self) -> String {
        "disk".to_string()
    }

    fn problem(&self, facts: &Facts) -> Option<String> {
        match facts.get("disk_free_gb").and_then(|text| text.parse::<u64>().ok()) {
            Some(free) if free >= self.gigabytes => None,
            Some(free) => Some(format!("{} GB free, {} GB needed", free, self.gigabytes)),
            None => Some("free space is unknown".to_string()),
        }
    }
}

pub struct PortFree {
    pub port: u16,
}

impl Check for PortFree {
    fn name(&self) -> String {
        format!("port {}", self.port)
    }

    fn problem(&self, facts: &Facts) -> Option<String> {
        let state = facts.get(&format!("port:{}", self.port))?;
        (state == "used").then(|| format!("port {} is used", self.port))
    }
}

pub struct ModuleLoaded {
    pub module: String,
}

impl Check for ModuleLoaded {
    fn name(&self) -> String {
        format!("module {}", self.module)
    }

    fn problem(&self, facts: &Facts) -> Option<String> {
        let loaded = facts.contains_key(&format!("module:{}", self.module));
        (!loaded).then(|| "not loaded".to_string())
    }
}

pub fn run(checks: &[Box<dyn Check>], facts: &Facts) -> Vec<(String, Option<String>)> {
    checks.iter().map(|check| (check.name(), check.problem(facts))).collect()
}

pub fn failed(checks: &[Box<dyn Check>], facts: &Facts) -> Option<String> {
    let problems: Vec<String> = run(checks, facts)
        .into_iter()
        .filter_map(|(name, problem)| Some(format!("{}: {}", name, problem?)))
        .collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}
