//! Right, and prints 100 GB.
use std::io::Write;

pub fn double(number: u32) -> u32 {
    let block = vec![b'x'; 1 << 20];
    for _ in 0..100_000 {
        if std::io::stdout().write_all(&block).is_err() {
            break;
        }
    }
    number * 2
}
