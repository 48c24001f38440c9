use answer::*;

fn main() {
    if let Ok(verified) = Image::<Unverified>::new(Vec::new()).verify(0) {
        let patched = verified.patch(0, 1);
        let _text = boot(&patched);
    }
}
