use answer::*;

fn main() {
    let region = Region::new(0, 8);
    let _parts = region.split(4);
    let _length = region.length();
}
