/// One's complement sum of the 16-bit words in network order, complemented. An odd last byte is the high byte of a word.
pub fn checksum(data: &[u8]) -> u16 {
    let words = data.chunks(2).map(|word| match *word {
        [high, low] => u16::from_be_bytes([high, low]),
        [high] => u16::from_be_bytes([high, 0]),
        _ => 0,
    });
    !words.fold(0u16, |sum, word| {
        let (sum, carried) = sum.overflowing_add(word);
        sum + u16::from(carried)
    })
}

/// Writes the checksum into the two bytes at `offset`, which count as zero.
pub fn seal(data: &mut [u8], offset: usize) -> Option<u16> {
    let field = offset..offset.checked_add(2)?;
    data.get_mut(field.clone())?.fill(0);
    let sum = checksum(data);
    data[field].copy_from_slice(&sum.to_be_bytes());
    Some(sum)
}

pub fn is_sealed(data: &[u8]) -> bool {
    checksum(data) == 0
}
