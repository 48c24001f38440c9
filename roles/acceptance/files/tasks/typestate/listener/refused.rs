use answer::*;

fn main() {
    let _listener = ListenerBuilder::<NoPort>::new().host("node1").build();
}
