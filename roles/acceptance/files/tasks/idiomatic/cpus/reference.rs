use std::collections::BTreeSet;
use std::fmt;
use std::ops::BitAnd;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u16>);

impl CpuSet {
    pub fn add(&mut self, cpu: u16) -> bool {
        self.0.insert(cpu)
    }

    pub fn contains(&self, cpu: u16) -> bool {
        self.0.contains(&cpu)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<u16> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u16>>(cpus: I) -> CpuSet {
        CpuSet(cpus.into_iter().collect())
    }
}

impl Extend<u16> for CpuSet {
    fn extend<I: IntoIterator<Item = u16>>(&mut self, cpus: I) {
        self.0.extend(cpus);
    }
}

impl BitAnd<&CpuSet> for &CpuSet {
    type Output = CpuSet;

    fn bitand(self, other: &CpuSet) -> CpuSet {
        CpuSet(&self.0 & &other.0)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|&next| next - 1 == last) {
                last = next;
            }
            write!(f, "{}{}", separator, first)?;
            if last > first {
                write!(f, "-{}", last)?;
            }
            separator = ",";
        }
        Ok(())
    }
}
