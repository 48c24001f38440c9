use answer::*;

fn ok() -> Response<Headers> {
    Response::<Start>::new().status(200, "OK")
}

fn text(response: Response<Body>) -> String {
    String::from_utf8(response.finish()).unwrap()
}

#[test]
fn status_headers_and_body_are_written() {
    let response = ok().header("Content-Type", "text/plain").header("X-Node", "a").body(b"hello\n");
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Node: a\r\nContent-Length: 6\r\n\r\nhello\n";
    assert_eq!(text(response), expected);
}

#[test]
fn empty_body_has_length_zero() {
    let response = Response::<Start>::new().status(204, "No Content").body(b"");
    assert_eq!(text(response), "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn parts_of_the_body_are_added_up() {
    let response = ok().body(b"ab").append(b"").append(b"c\r\n").append(b"d");
    assert_eq!(text(response), "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc\r\nd");
}

#[test]
fn bytes_are_counted_and_kept() {
    let bytes = [0, 255, 13, 10, 128];
    let written = ok().body("ß".as_bytes()).append(&bytes).finish();
    assert!(written.ends_with(&bytes));
    assert!(written.starts_with(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"));
}

#[test]
fn line_ends_cannot_be_smuggled_in() {
    let response = Response::<Start>::new().status(500, "a\r\nb").header("X\nY", "1\r\n\r\n2").body(b"");
    assert_eq!(text(response), "HTTP/1.1 500 a  b\r\nX Y: 1    2\r\nContent-Length: 0\r\n\r\n");
}
