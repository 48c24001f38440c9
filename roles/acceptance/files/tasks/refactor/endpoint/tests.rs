use answer::*;

fn endpoint(tls: bool, host: &str, port: u16, path: &str) -> Result<Endpoint, EndpointError> {
    Ok(Endpoint { tls, host: host.to_string(), port, path: path.to_string() })
}

#[test]
fn full_endpoint_is_parsed() {
    assert_eq!("http://node1:8000/v1/models".parse(), endpoint(false, "node1", 8000, "/v1/models"));
    assert_eq!("https://10.0.0.31:8443/".parse(), endpoint(true, "10.0.0.31", 8443, "/"));
}

#[test]
fn scheme_has_its_port() {
    assert_eq!("http://Node1".parse(), endpoint(false, "node1", 80, "/"));
    assert_eq!("https://NODE1/X".parse(), endpoint(true, "node1", 443, "/X"));
}

#[test]
fn later_separators_belong_to_the_path() {
    assert_eq!("http://a/b:c@d//e".parse(), endpoint(false, "a", 80, "/b:c@d//e"));
    assert_eq!("http://a:1:2".parse(), endpoint(false, "a:1", 2, "/"));
    assert_eq!("http://a:+80".parse(), endpoint(false, "a", 80, "/"));
}

#[test]
fn each_error_has_its_name() {
    for (text, error) in [
        ("", EndpointError::Scheme),
        ("ftp://a", EndpointError::Scheme),
        ("HTTP://a", EndpointError::Scheme),
        ("http://me@a", EndpointError::User),
        ("http://a:0", EndpointError::Port),
        ("http://a:", EndpointError::Port),
        ("http://a:65536/", EndpointError::Port),
        ("http://", EndpointError::Host),
        ("https:///path", EndpointError::Host),
        ("http://:80", EndpointError::Host),
    ] {
        assert_eq!(text.parse::<Endpoint>(), Err(error), "{:?}", text);
    }
}

#[test]
fn first_of_several_errors_is_reported() {
    assert_eq!("http://@:x".parse::<Endpoint>(), Err(EndpointError::User));
    assert_eq!("http://:x".parse::<Endpoint>(), Err(EndpointError::Port));
    assert_eq!("x://@:x".parse::<Endpoint>(), Err(EndpointError::Scheme));
}

#[test]
fn errors_have_texts() {
    fn text(error: impl std::error::Error) -> String {
        error.to_string()
    }
    assert_eq!(text(EndpointError::Scheme), "unknown scheme");
    assert_eq!(text(EndpointError::User), "user in the address");
    assert_eq!(text(EndpointError::Port), "bad port");
    assert_eq!(text(EndpointError::Host), "no host");
}
