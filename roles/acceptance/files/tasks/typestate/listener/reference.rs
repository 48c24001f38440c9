pub struct NoPort;

pub struct WithPort {
    port: u16,
}

pub struct ListenerBuilder<P> {
    host: String,
    backlog: u32,
    port: P,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: String,
    pub backlog: u32,
}

impl<P> ListenerBuilder<P> {
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.to_string();
        self
    }

    pub fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = backlog.clamp(1, 4096);
        self
    }
}

impl ListenerBuilder<NoPort> {
    #[allow(clippy::new_without_default)]
    pub fn new() -> ListenerBuilder<NoPort> {
        ListenerBuilder { host: "127.0.0.1".to_string(), backlog: 128, port: NoPort }
    }

    pub fn port(self, port: u16) -> ListenerBuilder<WithPort> {
        ListenerBuilder { host: self.host, backlog: self.backlog, port: WithPort { port } }
    }
}

impl ListenerBuilder<WithPort> {
    pub fn build(self) -> Listener {
        let port = self.port.port;
        let address = if self.host.contains(':') && !self.host.starts_with('[') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        };
        Listener { address, backlog: self.backlog }
    }
}
