# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import urls
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal


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
