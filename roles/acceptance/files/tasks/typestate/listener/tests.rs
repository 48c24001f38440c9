use answer::*;

fn new() -> ListenerBuilder<NoPort> {
    ListenerBuilder::<NoPort>::new()
}

#[test]
fn defaults_are_filled_in() {
    let expected = Listener { address: "127.0.0.1:8080".to_string(), backlog: 128 };
    assert_eq!(new().port(8080).build(), expected);
}

#[test]
fn order_of_calls_does_not_count() {
    let expected = Listener { address: "node1:80".to_string(), backlog: 7 };
    assert_eq!(new().host("node1").backlog(7).port(80).build(), expected);
    assert_eq!(new().port(80).backlog(7).host("node1").build(), expected);
    assert_eq!(new().backlog(7).port(80).host("node1").build(), expected);
}

#[test]
fn last_call_counts() {
    let listener = new().host("a").backlog(1).host("b").port(0).backlog(2).build();
    assert_eq!(listener, Listener { address: "b:0".to_string(), backlog: 2 });
}

#[test]
fn addresses_of_ipv6_have_brackets() {
    assert_eq!(new().host("::1").port(65535).build().address, "[::1]:65535");
    assert_eq!(new().port(1).host("[fe80::2]").build().address, "[fe80::2]:1");
    assert_eq!(new().host("fe80::2").host("10.0.0.31").port(1).build().address, "10.0.0.31:1");
}

#[test]
fn backlog_has_bounds() {
    for (given, kept) in [(0, 1), (1, 1), (4096, 4096), (4097, 4096), (u32::MAX, 4096)] {
        assert_eq!(new().backlog(given).port(1).build().backlog, kept);
    }
}
