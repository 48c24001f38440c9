use answer::*;
use std::rc::Rc;

#[test]
fn paths_follow_the_tree() {
    let sys = Group::root("sys");
    let llama = Group::child(&sys, "llama");
    let rpc = Group::child(&llama, "rpc");
    assert_eq!((sys.path(), llama.path(), rpc.path()), ("/sys".into(), "/sys/llama".into(), "/sys/llama/rpc".into()));
    assert!(Rc::ptr_eq(&rpc.parent().unwrap(), &llama));
    assert!(sys.parent().is_none());
    assert_eq!(rpc.name(), "rpc");
}

#[test]
fn children_keep_their_order() {
    let sys = Group::root("sys");
    for name in ["b", "a", "b"] {
        Group::child(&sys, name);
    }
    assert_eq!(sys.children(), ["b", "a", "b"]);
    assert!(Group::root("leaf").children().is_empty());
}

#[test]
fn dropped_root_takes_its_tree_along() {
    let sys = Group::root("sys");
    let (weak_root, weak_leaf) = {
        let leaf = Group::child(&Group::child(&sys, "a"), "b");
        (Rc::downgrade(&sys), Rc::downgrade(&leaf))
    };
    assert_eq!(weak_leaf.upgrade().unwrap().path(), "/sys/a/b");
    drop(sys);
    assert!(weak_root.upgrade().is_none());
    assert!(weak_leaf.upgrade().is_none());
}

#[test]
fn held_child_outlives_its_parent() {
    let sys = Group::root("sys");
    let llama = Group::child(&sys, "llama");
    let rpc = Group::child(&llama, "rpc");
    drop(sys);
    assert!(llama.parent().is_none());
    assert_eq!((llama.path(), rpc.path()), ("/llama".into(), "/llama/rpc".into()));
}

#[test]
fn removed_group_has_no_parent() {
    let sys = Group::root("sys");
    Group::child(&Group::child(&sys, "a"), "inner");
    Group::child(&sys, "b");
    let a = sys.remove("a").unwrap();
    assert_eq!(sys.children(), ["b"]);
    assert!(a.parent().is_none());
    assert_eq!((a.path(), a.children()), ("/a".into(), vec!["inner".to_string()]));
    assert_eq!(Rc::strong_count(&a), 1);
}

#[test]
fn first_child_of_a_name_is_removed() {
    let sys = Group::root("sys");
    let first = Group::child(&sys, "a");
    let second = Group::child(&sys, "a");
    assert!(sys.remove("x").is_none());
    assert!(Rc::ptr_eq(&sys.remove("a").unwrap(), &first));
    assert!(Rc::ptr_eq(&sys.remove("a").unwrap(), &second));
    assert!(sys.remove("a").is_none());
}
