use std::cell::RefCell;
use std::rc::Rc;

pub struct Group {
    name: String,
    parent: RefCell<Option<Rc<Group>>>,
    children: RefCell<Vec<Rc<Group>>>,
}

impl Group {
    fn new(name: &str, parent: Option<Rc<Group>>) -> Rc<Group> {
        Rc::new(Group { name: name.to_string(), parent: RefCell::new(parent), children: RefCell::default() })
    }

    /// A group without a parent.
    pub fn root(name: &str) -> Rc<Group> {
        Group::new(name, None)
    }

    /// A new group, added as the last child of `parent`.
    pub fn child(parent: &Rc<Group>, name: &str) -> Rc<Group> {
        let child = Group::new(name, Some(Rc::clone(parent)));
        parent.children.borrow_mut().push(Rc::clone(&child));
        child
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parent, if there is one and it still exists.
    pub fn parent(&self) -> Option<Rc<Group>> {
        self.parent.borrow().clone()
    }

    /// The names of the children, in the order in which they were added.
    pub fn children(&self) -> Vec<String> {
        self.children.borrow().iter().map(|child| child.name.clone()).collect()
    }

    /// The names from the topmost existing ancestor down to this group, each after a `/`.
    pub fn path(&self) -> String {
        let above = self.parent().map(|parent| parent.path()).unwrap_or_default();
        format!("{above}/{}", self.name)
    }

    /// Takes the first child with this name out of the tree.
    pub fn remove(&self, name: &str) -> Option<Rc<Group>> {
        let mut children = self.children.borrow_mut();
        let index = children.iter().position(|child| child.name == name)?;
        let child = children.remove(index);
        child.parent.replace(None);
        Some(child)
    }
}
