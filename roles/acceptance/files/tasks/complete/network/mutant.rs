use std::net::Ipv4Addr;

/// Whether an IPv4 address is in a network such as `10.1.0.0/16`.
pub fn contains(network: &str, address: &str) -> Option<bool> {
    let (first, length) = network.split_once('/')?;
    let first = u32::from(first.parse::<Ipv4Addr>().ok()?);
    if length.len() > 2 || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let length: u32 = length.parse().ok().filter(|&length| length <= 32)?;
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    Some(address & mask == first & mask)
}
