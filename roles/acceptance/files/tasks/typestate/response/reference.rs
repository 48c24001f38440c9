use std::marker::PhantomData;

pub struct Start;
pub struct Headers;
pub struct Body;

pub struct Response<S> {
    head: String,
    body: Vec<u8>,
    state: PhantomData<S>,
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

impl Response<Start> {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Response<Start> {
        Response { head: String::new(), body: Vec::new(), state: PhantomData }
    }

    pub fn status(self, code: u16, reason: &str) -> Response<Headers> {
        let head = format!("HTTP/1.1 {code} {}\r\n", one_line(reason));
        Response { head, body: self.body, state: PhantomData }
    }
}

impl Response<Headers> {
    pub fn header(mut self, name: &str, value: &str) -> Response<Headers> {
        self.head += &format!("{}: {}\r\n", one_line(name), one_line(value));
        self
    }

    pub fn body(self, part: &[u8]) -> Response<Body> {
        Response { head: self.head, body: part.to_vec(), state: PhantomData }
    }
}

impl Response<Body> {
    pub fn append(mut self, part: &[u8]) -> Response<Body> {
        self.body.extend_from_slice(part);
        self
    }

    pub fn finish(self) -> Vec<u8> {
        let head = format!("{}Content-Length: {}\r\n\r\n", self.head, self.body.len());
        let mut written = head.into_bytes();
        written.extend(self.body);
        written
    }
}
