use std::marker::PhantomData;

pub struct Unverified;
pub struct Verified;

pub struct Image<S> {
    bytes: Vec<u8>,
    state: PhantomData<S>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub expected: u16,
    pub found: u16,
    pub bytes: Vec<u8>,
}

fn checksum(bytes: &[u8]) -> u16 {
    let (a, b) = bytes.iter().fold((0, 0), |(a, b), &byte| {
        let a = (a + u16::from(byte)) % 255;
        (a, (b + a) % 255)
    });
    b * 256 + a
}

impl<S> Image<S> {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Image<Unverified> {
    pub fn new(bytes: Vec<u8>) -> Image<Unverified> {
        Image { bytes, state: PhantomData }
    }

    pub fn verify(self, expected: u16) -> Result<Image<Verified>, Mismatch> {
        let found = checksum(&self.bytes);
        if found != expected {
            return Err(Mismatch { expected, found, bytes: self.bytes });
        }
        Ok(Image { bytes: self.bytes, state: PhantomData })
    }
}

impl Image<Verified> {
    pub fn patch(mut self, at: usize, byte: u8) -> Image<Unverified> {
        if let Some(place) = self.bytes.get_mut(at) {
            *place = byte;
        }
        Image::new(self.bytes)
    }
}

pub fn boot(image: &Image<Verified>) -> String {
    format!("booting {} bytes", image.bytes.len())
}
