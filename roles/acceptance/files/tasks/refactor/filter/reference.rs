pub struct Entry {
    pub level: u8,
    pub unit: String,
    pub text: String,
}

#[derive(Default)]
pub struct Filter {
    level: Option<u8>,
    unit: Option<String>,
    /// In lower case.
    text: Option<String>,
    newest_first: bool,
    limit: Option<usize>,
}

impl Filter {
    /// Entries that are at least this severe: 0 is an emergency, 7 is for debugging.
    pub fn level(mut self, level: u8) -> Filter {
        self.level = Some(level);
        self
    }

    /// Entries of a unit, named with or without `.service`.
    pub fn unit(mut self, unit: impl Into<String>) -> Filter {
        self.unit = Some(unit.into());
        self
    }

    pub fn text(mut self, text: impl Into<String>) -> Filter {
        self.text = Some(text.into().to_lowercase());
        self
    }

    pub fn newest_first(mut self) -> Filter {
        self.newest_first = true;
        self
    }

    /// 0 is no limit.
    pub fn limit(mut self, limit: usize) -> Filter {
        self.limit = Some(limit).filter(|&limit| limit > 0);
        self
    }

    pub fn select<'a>(&self, entries: &'a [Entry]) -> Vec<&'a Entry> {
        let limit = self.limit.unwrap_or(usize::MAX);
        let found = entries.iter().filter(|entry| self.matches(entry));
        if self.newest_first {
            found.rev().take(limit).collect()
        } else {
            found.take(limit).collect()
        }
    }

    fn matches(&self, entry: &Entry) -> bool {
        self.level.map_or(true, |level| entry.level <= level)
            && self.unit.as_ref().map_or(true, |unit| {
                entry.unit == *unit || entry.unit.strip_suffix(".service") == Some(unit.as_str())
            })
            && self.text.as_ref().map_or(true, |text| entry.text.to_lowercase().contains(text))
    }
}
