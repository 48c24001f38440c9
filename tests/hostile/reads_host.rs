//! Right only if it reads what root or the store has.
pub fn double(number: u32) -> u32 {
    let wanted = [
        "/etc/shadow",
        "/srv/llama-hostile/open.json",
        "/srv/llama-hostile/secret.json",
        "/root/.ssh/authorized_keys",
        "/proc/1/root/srv/llama-hostile/open.json",
        "/proc/1/root/etc/shadow",
        "/dev/vda",
        "/dev/mem",
    ];
    let read = wanted.iter().filter(|path| std::fs::read(path).is_ok()).count();
    number * if read > 0 { 2 } else { 3 }
}
