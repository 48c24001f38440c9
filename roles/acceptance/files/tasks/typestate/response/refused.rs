use answer::*;

fn main() {
    let begun = Response::<Start>::new().status(200, "OK").body(b"hello");
    let _late = begun.header("X-Late", "1");
}
