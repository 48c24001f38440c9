use answer::*;

fn ring(points: u32, nodes: &[&str]) -> Ring {
    let mut ring = Ring::new(points);
    for node in nodes {
        assert!(ring.add(node));
    }
    ring
}

/// The nodes of all points, from the owner of a key on, found by looking at every point.
fn walk(points: u32, nodes: &[&str], key: &str) -> Vec<String> {
    let mut all = Vec::new();
    for node in nodes {
        for point in 0..points {
            all.push((hash(format!("{node}#{point}").as_bytes()), node.to_string()));
        }
    }
    all.sort();
    let at = hash(key.as_bytes());
    let start = all.iter().position(|(point, _)| *point >= at).unwrap_or(0);
    all.rotate_left(start);
    all.into_iter().map(|(_, node)| node).collect()
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{index}:session")).collect()
}

const NODES: [&str; 4] = ["vasp-01", "vasp-02", "vasp-03", "desk"];

#[test]
fn hash_is_the_given_one() {
    assert_eq!((hash(b""), hash(b"a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
}

#[test]
fn owner_is_the_next_point() {
    let ring = ring(5, &NODES);
    for key in keys(300) {
        assert_eq!(ring.owner(&key), walk(5, &NODES, &key).first().map(String::as_str), "{key}");
    }
}

#[test]
fn ring_goes_on_after_its_greatest_point() {
    let nodes = &NODES[..2];
    let points: Vec<u64> = nodes.iter().map(|node| hash(format!("{node}#0").as_bytes())).collect();
    let (least, greatest) = (points[0].min(points[1]), points[0].max(points[1]));
    let behind = keys(10_000).into_iter().find(|key| hash(key.as_bytes()) > greatest).unwrap();
    let owner = nodes[points.iter().position(|point| *point == least).unwrap()];
    assert_eq!(ring(1, nodes).owner(&behind), Some(owner));
    assert_eq!(ring(1, nodes).owner("vasp-01#0"), Some("vasp-01"));
}

#[test]
fn nodes_are_there_once() {
    let mut ring = ring(3, &["a", "b"]);
    assert!(!ring.add("a") && !ring.remove("c"));
    assert!(ring.remove("a") && !ring.remove("a"));
    assert!(keys(50).iter().all(|key| ring.owner(key) == Some("b")));
    assert!(ring.remove("b"));
    assert_eq!((ring.owner("x"), ring.replicas("x", 2)), (None, vec![]));
    assert!(ring.add("a"));
}

#[test]
fn replicas_are_different_nodes() {
    let ring = ring(5, &NODES);
    for key in keys(100) {
        let mut met: Vec<String> = Vec::new();
        for node in walk(5, &NODES, &key) {
            if !met.contains(&node) {
                met.push(node);
            }
        }
        assert_eq!(ring.replicas(&key, 3), met[..3], "{key}");
        assert_eq!(ring.replicas(&key, 9), met, "{key}");
        assert!(ring.replicas(&key, 0).is_empty());
    }
}

#[test]
fn only_keys_of_a_removed_node_move() {
    let (full, mut less) = (ring(20, &NODES), ring(20, &NODES));
    assert!(less.remove("desk"));
    let keys = keys(500);
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let owned = names.iter().filter(|key| full.owner(key) == Some("desk")).count();
    assert!(owned > 0);
    assert_eq!((full.moved(&less, &names), less.moved(&full, &names)), (owned, owned));
    assert_eq!((full.moved(&full, &names), full.moved(&Ring::new(1), &names)), (0, 500));
}
