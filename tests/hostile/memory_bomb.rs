//! Right only if it gets 16 GiB.
pub fn double(number: u32) -> u32 {
    let mut blocks = Vec::new();
    for _ in 0..256 {
        blocks.push(vec![1u8; 64 << 20]);
    }
    number * if blocks.len() == 256 { 2 } else { 3 }
}
