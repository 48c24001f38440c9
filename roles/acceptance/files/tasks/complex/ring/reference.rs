use std::collections::{BTreeMap, BTreeSet};

/// FNV-1a of 64 bits.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

pub struct Ring {
    points: u32,
    nodes: BTreeSet<String>,
    owners: BTreeMap<u64, String>,
}

impl Ring {
    pub fn new(points: u32) -> Self {
        Ring { points, nodes: BTreeSet::new(), owners: BTreeMap::new() }
    }

    pub fn add(&mut self, node: &str) -> bool {
        if !self.nodes.insert(node.to_string()) {
            return false;
        }
        for point in 0..self.points {
            self.owners.insert(hash(format!("{node}#{point}").as_bytes()), node.to_string());
        }
        true
    }

    pub fn remove(&mut self, node: &str) -> bool {
        if !self.nodes.remove(node) {
            return false;
        }
        self.owners.retain(|_, owner| owner != node);
        true
    }

    /// The nodes of all points, from the first one at or after the hash of the key on, once around.
    fn around(&self, key: &str) -> impl Iterator<Item = &str> {
        let at = hash(key.as_bytes());
        let points = self.owners.range(at..).chain(self.owners.range(..at));
        points.map(|(_, node)| node.as_str())
    }

    pub fn owner(&self, key: &str) -> Option<&str> {
        self.around(key).next()
    }

    pub fn replicas(&self, key: &str, count: usize) -> Vec<&str> {
        let wanted = count.min(self.nodes.len());
        let mut found = Vec::with_capacity(wanted);
        for node in self.around(key) {
            if found.len() == wanted {
                break;
            }
            if !found.contains(&node) {
                found.push(node);
            }
        }
        found
    }

    pub fn moved(&self, other: &Ring, keys: &[&str]) -> usize {
        keys.iter().filter(|key| self.owner(key) != other.owner(key)).count()
    }
}
