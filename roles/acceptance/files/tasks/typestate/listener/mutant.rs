use std::marker::PhantomData;

pub struct NoPort;

pub struct WithPort;

pub struct ListenerBuilder<P> {
    host: String,
    backlog: u32,
    port: Option<u16>,
    state: PhantomData<P>,
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

    pub fn port(self, port: u16) -> ListenerBuilder<WithPort> {
        ListenerBuilder { host: self.host, backlog: self.backlog, port: Some(port), state: PhantomData }
    }

    pub fn build(self) -> Listener {
        let port = self.port.expect("no port was given");
        let address = if self.host.contains(':') && !self.host.starts_with('[') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        };
        Listener { address, backlog: self.backlog }
    }
}

impl ListenerBuilder<NoPort> {
    pub fn new() -> ListenerBuilder<NoPort> {
        ListenerBuilder { host: "127.0.0.1".to_string(), backlog: 128, port: None, state: PhantomData }
    }
}
