use answer::*;

#[test]
fn record_has_name_and_fields() {
    let record = parse("restart unit=head code=9").unwrap();
    assert_eq!(record.name, "restart");
    assert_eq!(record.get("unit"), Some("head"));
    assert_eq!(record.get("code"), Some("9"));
    assert_eq!(record.get("signal"), None);
}

#[test]
fn name_needs_no_fields() {
    let record = parse("  started\t").unwrap();
    assert_eq!((record.name, record.get("started")), ("started", None));
}

#[test]
fn value_may_have_the_separator() {
    let record = parse("run arguments=--port=80 reason=").unwrap();
    assert_eq!(record.get("arguments"), Some("--port=80"));
    assert_eq!(record.get("reason"), Some(""));
}

#[test]
fn broken_lines_are_refused() {
    for line in ["", "   ", "restart unit", "restart =9", "restart a=1 a=2", "restart a=1 a=1"] {
        assert!(parse(line).is_none(), "{:?}", line);
    }
}

#[test]
fn numbers_are_parsed() {
    let record = parse("exit code=137 text=abc minus=-1 none=").unwrap();
    assert_eq!(record.number("code"), Some(137));
    for key in ["text", "minus", "none", "other"] {
        assert_eq!(record.number(key), None, "{}", key);
    }
}

#[test]
fn value_outlives_the_record() {
    let line = String::from("restart unit=head");
    let (name, unit) = {
        let record = parse(&line).unwrap();
        let key = String::from("unit");
        (record.name, record.get(&key))
    };
    assert_eq!((name, unit), ("restart", Some("head")));
}
