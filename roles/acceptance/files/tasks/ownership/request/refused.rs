use answer::*;

fn main() {
    let builder = RequestBuilder::new(String::from("head"));
    let _first = builder.build();
    let _second = builder.build();
}
