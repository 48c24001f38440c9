use std::collections::BTreeMap;

pub type Facts = BTreeMap<String, String>;

pub trait Check {
    fn name(&self) -> String;
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
        let free: u64 = facts.get("disk_free_gb")?.parse().ok()?;
        (free < self.gigabytes).then(|| format!("{} GB free, {} GB needed", free, self.gigabytes))
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
