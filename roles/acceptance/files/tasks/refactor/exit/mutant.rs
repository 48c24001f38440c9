use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(u8),
    Signal { number: u8, core: bool },
}

impl Exit {
    pub fn from_raw(raw: u16) -> Exit {
        match (raw & 0x7f) as u8 {
            0 => Exit::Code((raw >> 8) as u8),
            number => Exit::Signal { number, core: raw & 0x80 != 0 },
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with {}", code),
            Exit::Signal { number, core: true } => write!(f, "killed by signal {} (core dumped)", number),
            Exit::Signal { number, .. } => write!(f, "killed by signal {}", number),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Never,
    OnFailure,
    Always,
}

impl Policy {
    pub fn restarts(self, exit: Exit) -> bool {
        match (self, exit) {
            (Policy::Never, _) => false,
            (Policy::Always, _) => true,
            (Policy::OnFailure, Exit::Code(code)) => code != 0,
            (Policy::OnFailure, Exit::Signal { number, .. }) => !matches!(number, 1 | 2 | 13 | 15),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        match text {
            "no" => Ok(Policy::Never),
            "on-failure" => Ok(Policy::OnFailure),
            "always" => Ok(Policy::Always),
            other => Err(format!("unknown policy: {}", other)),
        }
    }
}
