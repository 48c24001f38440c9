use std::marker::PhantomData;

pub struct Closed;
pub struct Open;
pub struct Ready;

pub struct Connection<S> {
    address: String,
    failures: u32,
    sent: Vec<String>,
    state: PhantomData<S>,
}

impl<S> Connection<S> {
    pub fn address(&self) -> &str {
        &self.address
    }

    fn into_state<T>(self) -> Connection<T> {
        Connection { address: self.address, failures: self.failures, sent: self.sent, state: PhantomData }
    }

    pub fn send(&mut self, line: &str) {
        self.sent.push(line.to_string());
    }

    pub fn sent(&self) -> &[String] {
        &self.sent
    }
}

impl Connection<Closed> {
    pub fn new(address: &str) -> Connection<Closed> {
        Connection { address: address.to_string(), failures: 0, sent: Vec::new(), state: PhantomData }
    }

    pub fn open(self) -> Connection<Open> {
        self.into_state()
    }
}

impl Connection<Open> {
    pub fn login(mut self, user: &str, password: &str) -> Result<Connection<Ready>, Connection<Open>> {
        if user.is_empty() || password.is_empty() {
            self.failures += 1;
            return Err(self);
        }
        Ok(self.into_state())
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }
}

impl Connection<Ready> {
    pub fn close(self) -> Connection<Closed> {
        Connection::new(&self.address)
    }
}
