use answer::*;

struct Always(&'static str);

impl Check for Always {
    fn name(&self) -> String {
        self.0.to_uppercase()
    }

    fn problem(&self, facts: &Facts) -> Option<String> {
        Some(format!("{} facts", facts.len()))
    }
}

fn facts(entries: &[(&str, &str)]) -> Facts {
    entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

#[test]
fn disk_needs_its_space() {
    let check = DiskFree { gigabytes: 100 };
    assert_eq!(check.name(), "disk");
    assert_eq!(check.problem(&facts(&[("disk_free_gb", "100")])), None);
    assert_eq!(check.problem(&facts(&[("disk_free_gb", "99")])).unwrap(), "99 GB free, 100 GB needed");
    assert_eq!(check.problem(&facts(&[("disk_free_gb", "9.5")])).unwrap(), "free space is unknown");
    assert_eq!(check.problem(&facts(&[])).unwrap(), "free space is unknown");
}

#[test]
fn port_must_not_be_used() {
    let check = PortFree { port: 8000 };
    assert_eq!(check.name(), "port 8000");
    assert_eq!(check.problem(&facts(&[("port:8000", "used")])).unwrap(), "port 8000 is used");
    assert_eq!(check.problem(&facts(&[("port:8000", "free"), ("port:80", "used")])), None);
    assert_eq!(check.problem(&facts(&[])), None);
}

#[test]
fn module_must_be_loaded() {
    let check = ModuleLoaded { module: "nvidia".to_string() };
    assert_eq!(check.name(), "module nvidia");
    assert_eq!(check.problem(&facts(&[("module:nvidia", "")])), None);
    assert_eq!(check.problem(&facts(&[("module:nvidia_uvm", "1")])).unwrap(), "not loaded");
}

fn checks() -> Vec<Box<dyn Check>> {
    vec![
        Box::new(PortFree { port: 80 }),
        Box::new(Always("odd")),
        Box::new(DiskFree { gigabytes: 5 }),
        Box::new(ModuleLoaded { module: "ib".to_string() }),
    ]
}

#[test]
fn all_checks_run_in_order() {
    let found = run(&checks(), &facts(&[("disk_free_gb", "7")]));
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let problems: Vec<Option<&str>> = found.iter().map(|(_, problem)| problem.as_deref()).collect();
    assert_eq!(names, ["port 80", "ODD", "disk", "module ib"]);
    assert_eq!(problems, [None, Some("1 facts"), None, Some("not loaded")]);
}

#[test]
fn failed_checks_are_one_text() {
    let known = facts(&[("disk_free_gb", "4"), ("port:80", "used")]);
    let text = "port 80: port 80 is used; ODD: 2 facts; disk: 4 GB free, 5 GB needed; module ib: not loaded";
    assert_eq!(failed(&checks(), &known).unwrap(), text);
    assert_eq!(failed(&checks()[2..], &facts(&[("disk_free_gb", "5")])).unwrap(), "module ib: not loaded");
}

#[test]
fn nothing_failed_is_no_text() {
    assert_eq!(failed(&[], &facts(&[])), None);
    assert_eq!(failed(&checks()[..1], &facts(&[])), None);
    assert!(run(&[], &facts(&[])).is_empty());
}
