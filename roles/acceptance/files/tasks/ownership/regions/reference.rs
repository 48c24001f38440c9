#[derive(Debug, PartialEq, Eq)]
pub struct Region {
    start: u64,
    length: u64,
}

impl Region {
    /// The blocks `start .. start + length`. Panics if `length` is 0 or if the end does not fit into u64.
    pub fn new(start: u64, length: u64) -> Self {
        assert!(length > 0, "a region has at least one block");
        assert!(start.checked_add(length).is_some(), "the end of a region fits into u64");
        Region { start, length }
    }

    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    fn end(&self) -> u64 {
        self.start + self.length
    }

    /// Splits into the first `blocks` blocks and the others.
    pub fn split(self, blocks: u64) -> Result<(Region, Region), Region> {
        if blocks == 0 || blocks >= self.length {
            return Err(self);
        }
        Ok((Region::new(self.start, blocks), Region::new(self.start + blocks, self.length - blocks)))
    }

    /// Joins two regions, in either order, if one begins where the other one ends.
    pub fn join(self, other: Region) -> Result<Region, (Region, Region)> {
        if self.end() != other.start && other.end() != self.start {
            return Err((self, other));
        }
        Ok(Region::new(self.start.min(other.start), self.length + other.length))
    }
}

/// Takes `blocks` blocks from the shortest of the `free` regions that is long enough.
pub fn allocate(free: &mut Vec<Region>, blocks: u64) -> Option<Region> {
    if blocks == 0 {
        return None;
    }
    let fitting = free.iter().enumerate().filter(|(_, region)| region.length >= blocks);
    let (index, _) = fitting.min_by_key(|(_, region)| region.length)?;
    match free.remove(index).split(blocks) {
        Ok((taken, left)) => {
            free.insert(index, left);
            Some(taken)
        }
        Err(whole) => Some(whole),
    }
}
