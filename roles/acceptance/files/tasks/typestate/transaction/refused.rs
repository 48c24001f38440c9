use answer::*;

fn main() {
    let mut table = Table::new();
    let mut change = table.begin();
    change.set("a", "1");
    let _length = table.len();
    let _changed = change.commit();
}
