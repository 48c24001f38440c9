/// Lines of a hex dump, eight bytes in each.
pub fn dump(bytes: &[u8], start: u32) -> Vec<String> {
    bytes
        .chunks(8)
        .enumerate()
        .map(|(number, chunk)| {
            let digits: Vec<String> = chunk.iter().map(|byte| format!("{:02x}", byte)).collect();
            let text: String = chunk
                .iter()
                .map(|&byte| if (0x20..=0x7e).contains(&byte) { char::from(byte) } else { '.' })
                .collect();
            format!("{:08x}: {:<23}  |{}|", start + 8 * number as u32, digits.join(" "), text)
        })
        .collect()
}
