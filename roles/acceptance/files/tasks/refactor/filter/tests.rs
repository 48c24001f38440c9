use answer::*;

fn entries() -> Vec<Entry> {
    [
        (6, "head.service", "Listening on 8000"),
        (3, "rpc", "Out of memory"),
        (4, "head", "slow LINK"),
        (3, "rpc.service", "link is down"),
        (7, "head", "ping"),
    ]
    .iter()
    .map(|&(level, unit, text)| Entry { level, unit: unit.to_string(), text: text.to_string() })
    .collect()
}

fn found(filter: Filter) -> Vec<usize> {
    let entries = entries();
    let selected = filter.select(&entries);
    selected.iter().map(|one| entries.iter().position(|entry| std::ptr::eq(entry, *one)).unwrap()).collect()
}

#[test]
fn default_selects_everything() {
    assert_eq!(found(Filter::default()), [0, 1, 2, 3, 4]);
    assert!(Filter::default().select(&[]).is_empty());
}

#[test]
fn level_has_the_more_severe() {
    assert_eq!(found(Filter::default().level(3)), [1, 3]);
    assert_eq!(found(Filter::default().level(0)), Vec::<usize>::new());
}

#[test]
fn unit_needs_no_suffix() {
    assert_eq!(found(Filter::default().unit("head")), [0, 2, 4]);
    assert_eq!(found(Filter::default().unit(String::from("rpc.service"))), [3]);
    assert!(found(Filter::default().unit("")).is_empty());
}

#[test]
fn text_ignores_case() {
    assert_eq!(found(Filter::default().text("Link")), [2, 3]);
    assert_eq!(found(Filter::default().text("")), [0, 1, 2, 3, 4]);
}

#[test]
fn limit_counts_from_the_newest() {
    assert_eq!(found(Filter::default().limit(2)), [0, 1]);
    assert_eq!(found(Filter::default().limit(2).newest_first()), [4, 3]);
    assert_eq!(found(Filter::default().newest_first().limit(9)), [4, 3, 2, 1, 0]);
}

#[test]
fn zero_is_no_limit() {
    assert_eq!(found(Filter::default().limit(0)), [0, 1, 2, 3, 4]);
    assert_eq!(found(Filter::default().limit(1).limit(0)), [0, 1, 2, 3, 4]);
}

#[test]
fn conditions_hold_together() {
    assert_eq!(found(Filter::default().level(5).unit("head").text("link")), [2]);
    assert_eq!(found(Filter::default().level(0).level(6).unit("rpc").unit("head")), [0, 2]);
}

#[test]
fn filter_is_used_again() {
    let filter = Filter::default().level(4);
    let entries = entries();
    assert_eq!(filter.select(&entries).len(), 3);
    assert_eq!(filter.select(&entries[..2]).len(), 1);
}
