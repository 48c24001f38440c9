use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac([u8; 6]);

impl Mac {
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl From<[u8; 6]> for Mac {
    fn from(bytes: [u8; 6]) -> Mac {
        Mac(bytes)
    }
}

impl From<Mac> for [u8; 6] {
    fn from(mac: Mac) -> [u8; 6] {
        mac.0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", a, b, c, d, e, g)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacError;

impl fmt::Display for MacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a hardware address")
    }
}

impl std::error::Error for MacError {}

fn byte(text: &str) -> Option<u8> {
    // from_str_radix takes a sign, too.
    let digits = text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(text, 16).ok().filter(|_| digits)
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Mac, MacError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let bytes: Option<Vec<u8>> = text.split(separator).map(byte).collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Mac).ok_or(MacError)
    }
}
