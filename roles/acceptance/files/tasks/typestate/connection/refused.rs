use answer::*;

fn main() {
    let mut connection = Connection::<Closed>::new("db:5432").open();
    connection.send("begin");
}
