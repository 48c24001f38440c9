#[derive(Debug, PartialEq)]
pub enum Error {
    Length,
    TooLong,
    Comma,
}

/// A payload, and what follows its frame.
pub type Frame<'a> = (&'a [u8], &'a [u8]);

/// The first frame.
pub fn take(input: &[u8], limit: usize) -> Result<Option<Frame<'_>>, Error> {
    let mut length = 0usize;
    for (index, &byte) in input.iter().enumerate() {
        match byte {
            b':' if index > 0 => return payload(&input[index + 1..], length),
            b'0'..=b'9' if index == 0 || input[0] != b'0' => {
                let longer = length.checked_mul(10).and_then(|ten| ten.checked_add(usize::from(byte - b'0')));
                length = longer.filter(|&longer| longer <= limit).ok_or(Error::TooLong)?;
            }
            _ => return Err(Error::Length),
        }
    }
    Ok(None)
}

fn payload(input: &[u8], length: usize) -> Result<Option<Frame<'_>>, Error> {
    match input.get(length) {
        None => Ok(None),
        Some(b',') => Ok(Some((&input[..length], &input[length + 1..]))),
        Some(_) => Err(Error::Comma),
    }
}
