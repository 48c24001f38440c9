#[derive(Debug, PartialEq, Eq)]
pub struct Route {
    pub prefix: String,
    pub target: String,
}

impl Route {
    fn matches(&self, path: &str) -> bool {
        match path.strip_prefix(self.prefix.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/') || self.prefix.ends_with('/'),
            None => false,
        }
    }
}

pub fn pick<'r>(routes: &'r [Route], path: &str) -> Option<&'r Route> {
    routes.iter().filter(|route| route.matches(path)).max_by_key(|route| route.prefix.len())
}

pub fn target_of<'r>(routes: &'r [Route], request: &str) -> Option<&'r str> {
    let path = request.split('?').next().unwrap_or("").to_lowercase();
    pick(routes, &path).map(|route| route.target.as_str())
}
