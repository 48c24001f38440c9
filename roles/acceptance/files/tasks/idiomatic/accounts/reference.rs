use std::error::Error;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AccountError {
    Fields(usize),
    Name,
    Number(ParseIntError),
}

impl From<ParseIntError> for AccountError {
    fn from(error: ParseIntError) -> AccountError {
        AccountError::Number(error)
    }
}

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccountError::Fields(seen) => write!(f, "3 fields are needed, {} seen", seen),
            AccountError::Name => f.write_str("empty name"),
            AccountError::Number(error) => error.fmt(f),
        }
    }
}

impl Error for AccountError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AccountError::Number(error) => Some(error),
            _ => None,
        }
    }
}

impl FromStr for Account {
    type Err = AccountError;

    fn from_str(line: &str) -> Result<Account, AccountError> {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            ["", _, _] => Err(AccountError::Name),
            [name, uid, gid] => Ok(Account { name: name.to_string(), uid: uid.parse()?, gid: gid.parse()? }),
            _ => Err(AccountError::Fields(fields.len())),
        }
    }
}

/// Accounts of all lines, or the first error and the number of its line, counted from 1.
pub fn parse_accounts(text: &str) -> Result<Vec<Account>, (usize, AccountError)> {
    (1..)
        .zip(text.lines().map(str::trim))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| line.parse().map_err(|error| (number, error)))
        .collect()
}
