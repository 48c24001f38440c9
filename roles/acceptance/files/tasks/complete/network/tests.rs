use answer::*;

#[test]
fn addresses_are_in_or_out() {
    assert_eq!(contains("10.1.0.0/16", "10.1.255.255"), Some(true));
    assert_eq!(contains("10.1.0.0/16", "10.2.0.0"), Some(false));
    assert_eq!(contains("192.168.4.0/22", "192.168.7.255"), Some(true));
    assert_eq!(contains("192.168.4.0/22", "192.168.8.0"), Some(false));
}

#[test]
fn prefix_zero_has_all_addresses() {
    assert_eq!(contains("0.0.0.0/0", "255.255.255.255"), Some(true));
    assert_eq!(contains("0.0.0.0/0", "0.0.0.0"), Some(true));
}

#[test]
fn prefix_32_has_one_address() {
    assert_eq!(contains("127.0.0.1/32", "127.0.0.1"), Some(true));
    assert_eq!(contains("127.0.0.1/32", "127.0.0.2"), Some(false));
}

#[test]
fn prefix_may_begin_with_zero() {
    assert_eq!(contains("10.0.0.0/08", "10.9.9.9"), Some(true));
    assert_eq!(contains("0.0.0.0/00", "1.2.3.4"), Some(true));
}

#[test]
fn bits_behind_the_prefix_are_refused() {
    for network in ["10.1.0.1/16", "10.1.0.0/8", "0.0.0.1/0", "128.0.0.0/0", "10.0.0.3/31"] {
        assert_eq!(contains(network, "10.1.0.1"), None, "{}", network);
    }
}

#[test]
fn other_networks_are_refused() {
    for network in ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/008", "10.0.0/8", "10.0.0.0/8/8"] {
        assert_eq!(contains(network, "10.0.0.1"), None, "{}", network);
    }
    assert_eq!(contains("10.0.0.0 /8", "10.0.0.1"), None);
    assert_eq!(contains("::/0", "10.0.0.1"), None);
}

#[test]
fn other_addresses_are_refused() {
    for address in ["", "10.0.0", "10.0.0.256", "10.0.0.1/32", " 10.0.0.1", "::1"] {
        assert_eq!(contains("10.0.0.0/8", address), None, "{}", address);
    }
}
