use answer::*;

fn to(host: &str) -> RequestBuilder {
    RequestBuilder::new(host.to_string())
}

fn with(builder: RequestBuilder, headers: &[&str]) -> RequestBuilder {
    headers.iter().fold(builder, |builder, name| builder.header(name.to_string(), format!("value of {name}")))
}

#[test]
fn defaults_are_filled_in() {
    let request = to("head").build().unwrap();
    let expected = Request { host: "head".into(), path: "/".into(), headers: vec![], body: vec![] };
    assert_eq!(request, expected);
}

#[test]
fn last_path_and_body_count() {
    let request = to("head").body(vec![1]).path("/a".into()).body(vec![2]).path("/b".into()).build().unwrap();
    assert_eq!((request.path.as_str(), request.body.as_slice()), ("/b", &[2][..]));
}

#[test]
fn headers_keep_their_order() {
    let request = with(to("head"), &["X-B", "X-A", "X-C"]).build().unwrap();
    let names: Vec<_> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["X-B", "X-A", "X-C"]);
    assert_eq!(request.headers[1].1, "value of X-A");
}

#[test]
fn each_error_is_reported() {
    assert_eq!(to("").build(), Err(BuildError::EmptyHost));
    assert_eq!(to("head").path("v1".into()).build(), Err(BuildError::RelativePath("v1".into())));
    assert_eq!(to("head").path("".into()).build(), Err(BuildError::RelativePath("".into())));
    let twice = with(to("head"), &["Accept", "Host", "aCCEPT", "host"]);
    assert_eq!(twice.build(), Err(BuildError::DuplicateHeader("aCCEPT".into())));
}

#[test]
fn host_is_checked_before_path_before_headers() {
    let wrong = |host: &str, path: &str| with(to(host).path(path.into()), &["a", "a"]).build();
    assert_eq!(wrong("", "x"), Err(BuildError::EmptyHost));
    assert_eq!(wrong("head", "x"), Err(BuildError::RelativePath("x".into())));
    assert_eq!(wrong("head", "/x"), Err(BuildError::DuplicateHeader("a".into())));
}

#[test]
fn nothing_is_copied() {
    let (host, value, body) = (String::from("head"), String::from("text"), vec![7; 4096]);
    let before = (host.as_ptr(), value.as_ptr(), body.as_ptr());
    let request = RequestBuilder::new(host).header("X".into(), value).body(body).build().unwrap();
    assert_eq!((request.host.as_ptr(), request.headers[0].1.as_ptr(), request.body.as_ptr()), before);
}
