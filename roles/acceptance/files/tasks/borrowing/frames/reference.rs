pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    pub fn new(buffer: &'a [u8]) -> Self {
        Frames { rest: buffer }
    }

    /// The bytes that have not been read as frames yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (&length, behind) = self.rest.split_first()?;
        let length = usize::from(length);
        if behind.len() < length {
            return None;
        }
        let (frame, rest) = behind.split_at(length);
        self.rest = rest;
        Some(frame)
    }
}
