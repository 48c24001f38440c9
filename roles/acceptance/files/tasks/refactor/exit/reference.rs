use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(u8),
    Signal { number: u8, core: bool },
}

impl Exit {
    pub fn from_raw(raw: u16) -> Exit {
        let [code, low] = raw.to_be_bytes();
        match low & 0x7f {
            0 => Exit::Code(code),
            number => Exit::Signal { number, core: low & 0x80 != 0 },
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with {}", code),
            Exit::Signal { number, core } => {
                write!(f, "killed by signal {}{}", number, if *core { " (core dumped)" } else { "" })
            }
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
        match self {
            Policy::Never => false,
            Policy::Always => true,
            // These signals end a process in order, unless it dumped core.
            Policy::OnFailure => !matches!(exit, Exit::Code(0) | Exit::Signal { number: 1 | 2 | 13 | 15, core: false }),
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
