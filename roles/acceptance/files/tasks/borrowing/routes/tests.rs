use answer::*;

fn routes(pairs: &[(&str, &str)]) -> Vec<Route> {
    pairs.iter().map(|(prefix, target)| Route { prefix: prefix.to_string(), target: target.to_string() }).collect()
}

fn found<'r>(routes: &'r [Route], path: &str) -> Option<&'r str> {
    pick(routes, path).map(|route| route.target.as_str())
}

#[test]
fn longest_prefix_is_chosen() {
    let known = routes(&[("/", "root"), ("/v1/models", "list"), ("/v1", "api")]);
    assert_eq!(found(&known, "/v1/models/a"), Some("list"));
    assert_eq!(found(&known, "/v1/chat"), Some("api"));
    assert_eq!(found(&known, "/metrics"), Some("root"));
}

#[test]
fn prefixes_end_at_segments() {
    let known = routes(&[("/v1", "api"), ("/files/", "files")]);
    assert_eq!(found(&known, "/v1"), Some("api"));
    assert_eq!(found(&known, "/v1/"), Some("api"));
    assert_eq!(found(&known, "/v10"), None);
    assert_eq!(found(&known, "/v"), None);
    assert_eq!(found(&known, "/files/x"), Some("files"));
    assert_eq!(found(&known, "/files"), None);
}

#[test]
fn first_of_equal_prefixes_is_chosen() {
    let known = routes(&[("/", "root"), ("/v1", "first"), ("/v1", "second")]);
    assert_eq!(found(&known, "/v1/chat"), Some("first"));
}

#[test]
fn nothing_matches() {
    assert_eq!(pick(&[], "/"), None);
    assert_eq!(found(&routes(&[("/", "root")]), ""), None);
    assert_eq!(target_of(&routes(&[("/v1", "api")]), "?/v1"), None);
}

#[test]
fn query_and_case_do_not_count() {
    let known = routes(&[("/v1", "api"), ("/", "root")]);
    assert_eq!(target_of(&known, "/V1/Chat?x=/y?z"), Some("api"));
    assert_eq!(target_of(&known, "/?a=/v1"), Some("root"));
}

#[test]
fn results_outlive_path_and_request() {
    let known = routes(&[("/v1", "api")]);
    let (route, target) = {
        let (path, request) = (String::from("/v1/a"), String::from("/v1?b"));
        (pick(&known, &path), target_of(&known, &request))
    };
    assert!(std::ptr::eq(route.unwrap(), &known[0]));
    assert_eq!(target, Some("api"));
}
