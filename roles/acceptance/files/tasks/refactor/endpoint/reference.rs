use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    pub path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointError {
    Scheme,
    User,
    Port,
    Host,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndpointError::Scheme => "unknown scheme",
            EndpointError::User => "user in the address",
            EndpointError::Port => "bad port",
            EndpointError::Host => "no host",
        })
    }
}

impl std::error::Error for EndpointError {}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let secure = text.strip_prefix("https://");
        let tls = secure.is_some();
        let rest = secure.or_else(|| text.strip_prefix("http://")).ok_or(EndpointError::Scheme)?;
        let (authority, tail) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(EndpointError::User);
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, number)) => {
                (host, number.parse().ok().filter(|&port| port > 0).ok_or(EndpointError::Port)?)
            }
            None => (authority, if tls { 443 } else { 80 }),
        };
        if host.is_empty() {
            return Err(EndpointError::Host);
        }
        let path = if tail.is_empty() { "/" } else { tail };
        Ok(Endpoint { tls, host: host.to_lowercase(), port, path: path.to_string() })
    }
}
