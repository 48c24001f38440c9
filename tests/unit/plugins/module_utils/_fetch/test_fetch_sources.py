# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a source from a server's first response, and changes that later ones show."""

import contextlib
import io
import types
from email.message import Message

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import sources, urls
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.errors import Transient
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

URL = "https://h/m.gguf"


@pytest.fixture(name="answer")
def fixture_answer(monkeypatch):
    """Has the server answer with a status and header fields."""

    def answer(status, **fields):
        headers = Message()
        for name, value in fields.items():
            headers[name.replace("_", "-")] = value
        response = types.SimpleNamespace(status=status, headers=headers)
        monkeypatch.setattr(sources, "get_following", lambda client, url, more, token: (response, url))
        monkeypatch.setattr(sources, "discard", lambda client, url, response, most=0: None)

    return answer


def resolved(**options):
    source = sources.HttpSource(URL, **options)
    source.resolve(None)
    return source


@pytest.mark.parametrize(
    ("known", "size"), [(None, 10), (10, 10), (11, None)], ids=["unknown", "as expected", "another file"]
)
def test_size_comes_from_range(answer, known, size):
    answer(206, Content_Range="bytes 0-0/10")
    if size:
        assert sources.size_of(resolved(size=known)) == size
    else:
        with pytest.raises(Refusal, match="changed on the server .*10 bytes seen, None, 11 bytes known"):
            resolved(size=known)


@pytest.mark.parametrize(
    ("status", "fields", "words"),
    [
        (206, {"Content_Range": "bytes 0-0/*"}, "this server does not send ranges of bytes: use another source"),
        (206, {}, "this server does not send ranges"),
        (200, {"Content_Length": "10"}, "this server does not send ranges"),
        (416, {}, "empty, a GGUF file is needed"),
        (200, {"Content_Length": "10", "Content_Type": "text/html; charset=utf-8"}, "a web page, not a model"),
    ],
)
def test_answer_that_is_of_no_use(answer, status, fields, words):
    answer(status, **fields)
    with pytest.raises(Refusal, match="^https://h/m.gguf: " + words):
        resolved()


@pytest.mark.parametrize(
    ("fields", "validator"),
    [
        ({}, None),
        ({"ETag": '"a"', "Last_Modified": "Mon"}, '"a"'),
        ({"ETag": 'W/"a"', "Last_Modified": "Mon"}, "Mon"),
        ({"ETag": 'W/"a"'}, None),
        ({"Last_Modified": "x" * 200}, "x" * 200),
        ({"Last_Modified": "x" * 201}, None),
        ({"ETag": '"\x1b"'}, None),
    ],
)
def test_what_file_is_known_by(answer, fields, validator):
    answer(206, Content_Range="bytes 0-0/10", **fields)
    assert resolved().validator == validator


@pytest.mark.parametrize(
    ("size", "etag", "pinned", "changed"),
    [
        (10, '"a"', False, False),
        (10, '"b"', False, True),
        (10, '"b"', True, False),
        (11, '"a"', False, True),
        (11, '"a"', True, True),
    ],
)
def test_file_that_changes_between_two_answers(answer, size, etag, pinned, changed):
    answer(206, Content_Range="bytes 0-0/10", ETag='"a"')
    source = resolved(pinned=pinned)
    answer(206, Content_Range="bytes 0-0/%d" % size, ETag=etag)
    if changed:
        with pytest.raises(Refusal, match="changed on the server"):
            source.resolve(None)
    else:
        source.resolve(None)
        assert source.validator == etag


def test_local_file_cut_while_read_is_refused(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"0123456789")
    source = sources.make_source(str(path))
    source.resolve(None)
    body, buffer = source.open(None, 2, 8), bytearray(5)
    assert (body.readinto(memoryview(buffer)), body.length, bytes(buffer)) == (5, 3, b"23456")
    path.write_bytes(b"012")
    for one in (body, source.open(None, 0, 1)):
        with contextlib.closing(one), pytest.raises(Refusal, match="m.gguf: changed while it was read"):
            one.readinto(memoryview(buffer))


def test_local_file_that_fails_is_refused(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"0123456789")
    source = sources.make_source(str(path))
    source.resolve(None)
    with contextlib.closing(source.open(None, 0, 10)) as body:
        body.stream.close()
        body.stream = open("/proc/self/mem", "rb", buffering=0)  # noqa: SIM115 - its first byte cannot be read
        with pytest.raises(Refusal, match="^%s: cannot be read: Input/output error$" % path):
            body.readinto(memoryview(bytearray(5)))
    path.unlink()
    with pytest.raises(Refusal, match="^%s: cannot be read: No such file or directory$" % path):
        source.open(None, 0, 10)


class Client:
    """Answers from a list; its connections are dropped by the URL."""

    def __init__(self, *answers):
        self.answers, self.urls, self.asked, self.dropped = list(answers), [], [], []

    def get(self, url, headers):
        self.urls.append(url)
        self.asked.append(dict(headers))
        return self.answers.pop(0)

    def drop(self, url):
        self.dropped.append(url)


def response(status=206, data=b"", **fields):
    headers = Message()
    for name, value in fields.items():
        headers[name.replace("_", "-")] = value
    stream = io.BytesIO(data)
    return types.SimpleNamespace(
        status=status,
        reason="Why",
        headers=headers,
        readinto=stream.readinto,
        read=stream.read,
        isclosed=lambda: stream.tell() == len(data),
    )


def known(size=100, validator='"a"', pinned=False, final=URL):
    """A source that has been resolved."""
    source = sources.HttpSource(URL, pinned=pinned)
    source.size, source.validator, source._final = size, validator, final
    return source


def test_request_has_range_and_validator():
    for source, headers in (
        (known(), {"Range": "bytes=10-14", "If-Range": '"a"'}),
        (known(validator=None), {"Range": "bytes=10-14"}),
    ):
        client = Client(response(Content_Range="bytes 10-14/100"))
        assert (source.open(client, 10, 5).length, client.asked) == (5, [headers])


@pytest.mark.parametrize(
    ("range_", "length"), [("10-14/100", 5), ("10-10/100", 1), ("10-99/100", 5)], ids=["all", "less", "more"]
)
def test_body_has_at_most_requested_length(range_, length):
    assert known().open(Client(response(Content_Range="bytes " + range_)), 10, 5).length == length


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (response(Content_Range="bytes 11-14/100"), Transient, "answered bytes 11-14/100 to bytes=10-14"),
        (response(Content_Range="bytes 10-9/100"), Transient, "answered bytes 10-9/100 to bytes=10-14"),
        (response(), Transient, "answered None to bytes=10-14"),
        (response(Content_Range="bytes 10-14/101"), Refusal, "changed on the server .*101 bytes"),
        (response(200), Transient, "answered None to bytes=10-14"),
        (response(Content_Range="bytes 10-14/100", ETag='"b"'), Refusal, "changed on the server"),
        (response(Content_Range="bytes 10-14/100", Content_Encoding="br"), Refusal, "sends Content-Encoding br"),
        (response(412), Refusal, "changed on the server .*status 412"),
        (response(416), Refusal, "changed on the server .*status 416"),
        (response(404), Refusal, "answered 404 Why"),
        (response(503), Transient, "answered 503 Why"),
    ],
)
def test_wrong_body_is_refused(answer, kind, words):
    with pytest.raises(kind, match="^https://h/m.gguf: " + words):
        known().open(Client(answer), 10, 5)


def test_pinned_file_ignores_other_validators():
    other = {"Content_Range": "bytes 10-14/100", "ETag": '"b"'}
    assert known(pinned=True).open(Client(response(**other)), 10, 5).length == 5
    assert known(validator=None).open(Client(response(**other)), 10, 5).length == 5


@pytest.mark.parametrize(("refused", "renewed"), [(0, 0), (1, 1), (2, 2)])
def test_signed_address_that_has_expired_is_renewed(monkeypatch, refused, renewed):
    source, asked = known(final="https://cdn/x?sig=1"), []
    monkeypatch.setattr(source, "resolve", asked.append)
    client = Client(*[response(403)] * refused, response(Content_Range="bytes 10-14/100"))
    assert source.open(client, 10, 5).length == 5
    assert (asked, source._generation) == ([client] * renewed, renewed)
    assert set(client.urls) == {"https://cdn/x?sig=1"}, "the address that redirects is not asked each time"


def test_refused_fresh_signature_is_transient(monkeypatch):
    source, asked = known(final="https://cdn/x?sig=1"), []
    monkeypatch.setattr(source, "resolve", asked.append)
    with pytest.raises(Transient, match="answered 403 Why"):
        source.open(Client(*[response(403)] * 3), 10, 5)
    assert len(asked) == 2
    with pytest.raises(Transient, match="answered 503 Why"):
        source.open(Client(response(503)), 10, 5)
    assert len(asked) == 2, "an error of the server says nothing of the address"


def test_broken_body_drops_connection():
    client = Client(*[response(data=b"012", Content_Range="bytes 0-4/100") for _body in range(2)])
    body = known().open(client, 0, 5)
    body.readinto(memoryview(bytearray(3)))
    with pytest.raises(Transient, match="the connection ended 2 bytes early"):
        body.readinto(memoryview(bytearray(3)))
    left = known().open(client, 0, 5)
    left.close()
    left.close()
    assert client.dropped == [URL]


@pytest.mark.parametrize("url", ["/m/a%20b.gguf", "file:///m/a%2520b.gguf", "file://localhost/m/a%2520b.gguf"])
def test_path_is_file_of_this_node(url):
    assert sources.make_source(url).path == "/m/a%20b.gguf"


@pytest.mark.parametrize("url", ["file://other/m.gguf", "ftp://h/m.gguf", "m.gguf", "s3://b/m.gguf"])
def test_other_places_are_refused(url):
    with pytest.raises(Refusal, match="an http, https or file URL is needed"):
        sources.make_source(url)


@pytest.mark.parametrize(
    ("url", "other", "same"),
    [
        ("https://h/a", "https://h:443/b", True),
        ("http://h/a", "http://h:80/b", True),
        ("http://h:443/", "https://h/", False),
        ("https://h:8443/", "https://h/", False),
        ("https://h/", "https://g/", False),
    ],
)
def test_origin_is_scheme_host_and_port(url, other, same):
    assert urls.same_origin(url, other) == same
    token = {"Authorization": "Bearer t"} if same and url.startswith("https") else {}
    if url.startswith("https"):
        assert urls.authorization(url, "t", other) == token
    assert urls.authorization(url, None, other) == {}


@pytest.mark.parametrize(
    ("host", "here"),
    [("localhost", True), ("127.0.0.1", True), ("127.1.2.3", True), ("[::1]", True), ("10.0.0.1", False), ("h", False)],
)
def test_over_plain_http_token_stays_on_this_machine(host, here):
    url = "http://%s:8000/m.gguf" % host
    if here:
        assert urls.authorization(url, "t", url) == {"Authorization": "Bearer t"}
    else:
        with pytest.raises(Refusal, match="a token is not sent over http, https is needed"):
            urls.authorization(url, "t", url)


@pytest.mark.parametrize(
    "url", ["https://h/x.gguf", "https://u:p@h/x.gguf?sig=1#f", "https://u:p/q@h/x.gguf?y", "https://u:p/q@h/x.gguf#y"]
)
def test_url_is_shown_without_its_secrets(url):
    assert urls.public_url(url) == "https://h/x.gguf"


def test_signatures_do_not_choose_content():
    plain, chosen = (urls.content_url("https://h/x" + query) for query in ("", "?file=a"))
    assert plain == "https://h/x"
    digest = chosen.partition("https://h/x?sha256=")[2]
    assert len(digest) == 16 and int(digest, 16)
    assert urls.content_url("https://h/x?file=a&X-Amz-Date=2&sv=3&sig=4") == chosen
    assert urls.content_url("https://h/x?sig=4&sv=3&Key-Pair-Id=5") == plain
    others = {urls.content_url("https://h/x" + query) for query in ("?file=b", "?file=a&sv=3", "?file=")}
    assert len(others | {plain, chosen}) == 5


@pytest.mark.parametrize(
    ("url", "name"), [("https://h/a/b%20c.gguf?x=/y", "b c.gguf"), ("https://h/a/", "a"), ("https://h", "")]
)
def test_name_that_url_ends_in(url, name):
    assert urls.url_name(url) == name
