struct Node {
    key: String,
    hits: u32,
    next: Option<Box<Node>>,
}

#[derive(Default)]
pub struct Chain {
    head: Option<Box<Node>>,
}

impl Chain {
    pub fn new() -> Self {
        Chain::default()
    }

    /// Puts a node at the front. A key may be there more than once.
    pub fn push(&mut self, key: &str, hits: u32) {
        let next = self.head.take();
        self.head = Some(Box::new(Node { key: key.to_string(), hits, next }));
    }

    /// Removes the first node with this key and returns its hits.
    pub fn remove(&mut self, key: &str) -> Option<u32> {
        let mut link = &mut self.head;
        while link.as_ref()?.key != key {
            link = &mut link.as_mut()?.next;
        }
        let node = link.take()?;
        *link = node.next;
        Some(node.hits)
    }

    pub fn prune(&mut self, below: u32) -> usize {
        let mut removed = 0;
        let mut link = &mut self.head;
        while let Some(node) = link.take() {
            if node.hits < below {
                *link = node.next;
                removed += 1;
            } else {
                link = &mut link.insert(node).next;
            }
        }
        removed
    }

    pub fn keys(&self) -> Vec<&str> {
        let nodes = std::iter::successors(self.head.as_deref(), |node| node.next.as_deref());
        nodes.map(|node| node.key.as_str()).collect()
    }
}
