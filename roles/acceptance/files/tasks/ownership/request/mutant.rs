#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub host: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum BuildError {
    EmptyHost,
    RelativePath(String),
    DuplicateHeader(String),
}

pub struct RequestBuilder {
    request: Request,
}

impl RequestBuilder {
    pub fn new(host: String) -> Self {
        let request = Request { host, path: String::from("/"), headers: Vec::new(), body: Vec::new() };
        RequestBuilder { request }
    }

    pub fn path(mut self, path: String) -> Self {
        self.request.path = path;
        self
    }

    pub fn header(mut self, name: String, value: String) -> Self {
        self.request.headers.push((name, value));
        self
    }

    pub fn body(mut self, body: Vec<u8>) -> Self {
        self.request.body = body;
        self
    }

    pub fn build(&self) -> Result<Request, BuildError> {
        let request = &self.request;
        if request.host.is_empty() {
            return Err(BuildError::EmptyHost);
        }
        if !request.path.starts_with('/') {
            return Err(BuildError::RelativePath(request.path.clone()));
        }
        for (index, (name, _)) in request.headers.iter().enumerate() {
            if request.headers[..index].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
                return Err(BuildError::DuplicateHeader(name.clone()));
            }
        }
        Ok(request.clone())
    }
}
