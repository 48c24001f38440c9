use answer::*;

fn ready(address: &str) -> Connection<Ready> {
    Connection::<Closed>::new(address).open().login("anna", "secret").ok().unwrap()
}

#[test]
fn lines_are_kept_in_their_order() {
    let mut connection = ready("db:5432");
    assert!(connection.sent().is_empty());
    connection.send("begin");
    connection.send("");
    connection.send("commit");
    assert_eq!(connection.sent(), ["begin", "", "commit"]);
}

#[test]
fn address_is_known_in_every_state() {
    let closed = Connection::<Closed>::new("db:5432");
    assert_eq!(closed.address(), "db:5432");
    let open = closed.open();
    assert_eq!(open.address(), "db:5432");
    let ready = open.login("a", "b").ok().unwrap();
    assert_eq!(ready.address(), "db:5432");
    assert_eq!(ready.close().address(), "db:5432");
}

#[test]
fn failed_logins_are_counted() {
    let mut open = Connection::<Closed>::new("db").open();
    assert_eq!(open.failures(), 0);
    for (count, (user, password)) in [("", "secret"), ("anna", ""), ("", "")].into_iter().enumerate() {
        open = open.login(user, password).err().unwrap();
        assert_eq!(open.failures() as usize, count + 1);
    }
    assert!(open.login("anna", "secret").is_ok());
}

#[test]
fn closed_connection_begins_anew() {
    let failed = Connection::<Closed>::new("db").open().login("", "").err().unwrap();
    let mut connection = failed.login("anna", "secret").ok().unwrap();
    connection.send("begin");
    let open = connection.close().open();
    assert_eq!(open.failures(), 0);
    assert!(open.login("anna", "secret").ok().unwrap().sent().is_empty());
}
