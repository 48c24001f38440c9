use std::marker::PhantomData;

pub struct Receiving;
pub struct Complete;

pub struct Upload<S> {
    name: String,
    size: usize,
    bytes: Vec<u8>,
    state: PhantomData<S>,
}

impl<S> Upload<S> {
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Upload<Receiving> {
    pub fn begin(name: &str, size: usize) -> Upload<Receiving> {
        Upload { name: name.to_string(), size, bytes: Vec::new(), state: PhantomData }
    }

    pub fn write(&mut self, part: &[u8]) -> Result<(), usize> {
        match part.len().checked_sub(self.missing()) {
            None | Some(0) => {
                self.bytes.extend_from_slice(part);
                Ok(())
            }
            Some(excess) => Err(excess),
        }
    }

    pub fn missing(&self) -> usize {
        self.size - self.bytes.len()
    }

    pub fn finish(self) -> Result<Upload<Complete>, Upload<Receiving>> {
        if self.missing() > 0 {
            return Err(self);
        }
        Ok(Upload { name: self.name, size: self.size, bytes: self.bytes, state: PhantomData })
    }
}

impl Upload<Complete> {
    pub fn checksum(&self) -> u32 {
        self.bytes.iter().fold(0, |sum, &byte| sum.wrapping_add(u32::from(byte)))
    }

    pub fn publish(self) -> (String, Vec<u8>) {
        (self.name, self.bytes)
    }
}
