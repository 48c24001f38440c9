use answer::*;

#[test]
fn ports_and_ranges_are_sorted() {
    assert_eq!(parse_ports("443, 80,8000 - 8003 "), Some(vec![(80, 80), (443, 443), (8000, 8003)]));
}

#[test]
fn empty_text_is_an_empty_list() {
    assert_eq!(parse_ports(""), Some(vec![]));
    assert_eq!(parse_ports("  "), Some(vec![]));
}

#[test]
fn touching_ranges_are_one() {
    assert_eq!(parse_ports("82-90,80-81"), Some(vec![(80, 90)]));
    assert_eq!(parse_ports("1,2,3,5"), Some(vec![(1, 3), (5, 5)]));
}

#[test]
fn ranges_within_others_vanish() {
    assert_eq!(parse_ports("10-50,20-30,40"), Some(vec![(10, 50)]));
    assert_eq!(parse_ports("20-30,10-50,50-60"), Some(vec![(10, 60)]));
    assert_eq!(parse_ports("7,7,7-7"), Some(vec![(7, 7)]));
}

#[test]
fn highest_port_is_accepted() {
    assert_eq!(parse_ports("65535"), Some(vec![(65535, 65535)]));
    assert_eq!(parse_ports("65000-65535,65535,1"), Some(vec![(1, 1), (65000, 65535)]));
    assert_eq!(parse_ports("1-65535,65534"), Some(vec![(1, 65535)]));
}

#[test]
fn other_texts_are_refused() {
    for text in ["0", "0-5", "65536", "9-8", "80,", ",80", "80,,81", "-", "80-", "-80", "+80", "1-+2", "1-2-3", "http"] {
        assert_eq!(parse_ports(text), None, "{:?}", text);
    }
}
