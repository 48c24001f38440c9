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
    let colon = match input.iter().position(|&byte| byte == b':') {
        Some(colon) => colon,
        None => return if input.iter().all(u8::is_ascii_digit) { Ok(None) } else { Err(Error::Length) },
    };
    let digits = &input[..colon];
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) || (digits[0] == b'0' && digits.len() > 1) {
        return Err(Error::Length);
    }
    let length: usize = match std::str::from_utf8(digits).unwrap().parse() {
        Ok(length) if length <= limit => length,
        _ => return Err(Error::TooLong),
    };
    let rest = &input[colon + 1..];
    match rest.get(length) {
        None => Ok(None),
        Some(b',') => Ok(Some((&rest[..length], &rest[length + 1..]))),
        Some(_) => Err(Error::Comma),
    }
}
