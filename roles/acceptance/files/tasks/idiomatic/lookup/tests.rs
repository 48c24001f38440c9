use answer::*;
use std::collections::HashMap;

fn host(alias_of: Option<&str>, preferred: Option<&str>, interfaces: &[(&str, bool, Option<&str>)]) -> Host {
    Host {
        alias_of: alias_of.map(str::to_string),
        preferred: preferred.map(str::to_string),
        interfaces: interfaces
            .iter()
            .map(|&(name, up, address)| Interface { name: name.to_string(), up, address: address.map(str::to_string) })
            .collect(),
    }
}

fn hosts() -> HashMap<String, Host> {
    let usual = [("lo", false, Some("127.0.0.1")), ("eth0", true, Some("10.0.0.1")), ("ib0", true, Some("10.1.0.1"))];
    [
        ("node1", host(None, None, &usual)),
        ("node2", host(None, Some("ib0"), &usual)),
        ("node3", host(None, Some("lo"), &usual)),
        ("node4", host(None, Some("ib1"), &[("eth0", true, None), ("ib1", true, None), ("eth1", true, Some(""))])),
        ("node5", host(None, Some("ib0"), &[("ib0", false, Some("10.1.0.5"))])),
        ("head", host(Some("node2"), Some("eth0"), &[("eth0", true, Some("10.9.9.9"))])),
        ("chain", host(Some("head"), None, &usual)),
        ("lost", host(Some("gone"), None, &usual)),
        ("twice", host(None, Some("a"), &[("a", false, Some("1")), ("a", true, None), ("a", true, Some("2")), ("a", true, Some("3"))])),
    ]
    .into_iter()
    .map(|(name, host)| (name.to_string(), host))
    .collect()
}

#[test]
fn first_address_that_is_up_counts() {
    let hosts = hosts();
    assert_eq!(address(&hosts, "node1"), Some("10.0.0.1"));
    assert_eq!(address(&hosts, "node6"), None);
    assert_eq!(address(&hosts, "node5"), None);
}

#[test]
fn preferred_interface_comes_first() {
    let hosts = hosts();
    assert_eq!(address(&hosts, "node2"), Some("10.1.0.1"));
    assert_eq!(address(&hosts, "twice"), Some("2"));
}

#[test]
fn unusable_preferred_interface_is_passed() {
    let hosts = hosts();
    assert_eq!(address(&hosts, "node3"), Some("10.0.0.1"));
    assert_eq!(address(&hosts, "node4"), Some(""));
}

#[test]
fn alias_is_followed_once() {
    let hosts = hosts();
    assert_eq!(address(&hosts, "head"), Some("10.1.0.1"));
    assert_eq!(address(&hosts, "chain"), Some("10.9.9.9"));
    assert_eq!(address(&hosts, "lost"), None);
}

#[test]
fn addresses_are_in_order() {
    let hosts = hosts();
    assert_eq!(addresses(&hosts, &["head", "node4", "node1", "node1"]), Ok(vec!["10.1.0.1", "", "10.0.0.1", "10.0.0.1"]));
    assert_eq!(addresses(&hosts, &[]), Ok(vec![]));
}

#[test]
fn first_name_without_address_is_named() {
    let hosts = hosts();
    assert_eq!(addresses(&hosts, &["node1", "lost", "node6"]), Err("lost".to_string()));
    assert_eq!(addresses(&hosts, &["node6"]), Err("node6".to_string()));
}

#[test]
fn address_outlives_the_name() {
    let hosts = hosts();
    let found = {
        let name = String::from("node1");
        address(&hosts, &name)
    };
    assert_eq!(found, Some("10.0.0.1"));
}
