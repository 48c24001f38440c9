//! Right only if it can start more processes or threads than a sandbox allows.
use std::thread;
use std::time::Duration;

pub fn double(number: u32) -> u32 {
    let mut children = Vec::new();
    for _ in 0..2000 {
        children.extend(std::process::Command::new("sleep").arg("4713").spawn());
    }
    let wait = || thread::sleep(Duration::from_secs(4713));
    let threads = (0..2000).filter(|_| thread::Builder::new().stack_size(16 << 10).spawn(wait).is_ok()).count();
    thread::spawn(|| loop {
        let _ = std::process::Command::new("/proc/self/exe").spawn();
    });
    thread::sleep(Duration::from_secs(1));
    number * if children.len() == 2000 || threads == 2000 { 2 } else { 3 }
}
