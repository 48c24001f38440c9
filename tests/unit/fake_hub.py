# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model hub and its CDN, real HTTP servers on 127.0.0.1 and 127.0.0.2, that can misbehave on request.

The hub implements what downloads need of the Hugging Face hub: revision, paged tree with LFS digests, resolve with a
redirect to a signed URL of the CDN that expires. The CDN refuses a request that carries Authorization, as S3-like
stores do. Plain files are served by the hub's address under /files/.
"""

import contextlib
import hashlib
import http.server
import json
import re
import socket
import socketserver
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address, handler, hub):
        super().__init__(address, handler)
        self.hub = hub
        self.connections = 0
        self.sockets = set()

    def get_request(self):
        request = super().get_request()
        with self.hub.lock:
            self.connections += 1
            self.sockets.add(request[0])
        return request

    def handle_error(self, request, client_address):
        """A client that goes away in the middle is part of the tests."""

    @property
    def origin(self):
        return "http://%s:%d" % self.server_address


class FakeHub:
    """Use as a context manager. Everything that changes its behaviour is an attribute or a method; `log` holds what was
    asked."""

    def __init__(self):
        self.lock = threading.RLock()
        self.repos = {}
        self.plain = {}
        self.etags = {}
        self.log = []  # (server, path, headers)
        self.token = None
        self.page = 100  # entries per page of the tree
        self.signature = 1  # signed URLs with another one are refused
        self.expire_every = (
            0  # bytes requests after which the signature changes; the one before it stays good until the next change
        )
        self.validators = True
        self.rate = 0  # bytes per second and connection
        self.answers = []  # (status, headers, body) for the next requests for bytes, before anything else
        self.cuts = []  # bytes after which the next bodies break off
        self.on_bytes = None  # called with (name, start, end) before a body is sent
        self.redirect_to = None  # the next resolve goes there
        self.sent = 0
        self.expired = 0  # requests refused for their signature
        self._bytes_requests = 0

    def __enter__(self):
        self.servers = {
            "hub": Server(("127.0.0.1", 0), HubHandler, self),
            "cdn": Server(("127.0.0.2", 0), CdnHandler, self),
        }
        for server in self.servers.values():
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = self.servers["hub"].origin
        return self

    def __exit__(self, *exception):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()
            for connection in list(server.sockets):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def add_repo(self, name, files, gated=False):
        self.repos[name] = {"files": dict(files), "gated": gated}

    def add_plain(self, name, data):
        """A file under /files/; a new content gets a new ETag. -> its URL"""
        self.plain[name] = data
        self.etags[name] = '"%s"' % hashlib.md5(content(data)[:4096] + str(len(self.etags)).encode()).hexdigest()
        return "%s/files/%s" % (self.url, urllib.parse.quote(name))

    def bytes_requests(self):
        """[(path, Range header)] of the requests for file content."""
        with self.lock:
            return [
                (path, headers.get("Range"))
                for server, path, headers in self.log
                if "/files/" in path or server == "cdn"
            ]


def content(data):
    return data.read_bytes() if hasattr(data, "read_bytes") else data


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    name = ""

    def log_message(self, *arguments):
        pass

    def record(self):
        with self.server.hub.lock:
            self.server.hub.log.append((self.name, self.path, dict(self.headers)))

    def answer(self, status, headers, body, length=None):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def json(self, value, status=200, headers=None):
        self.answer(status, dict(headers or {}, **{"Content-Type": "application/json"}), json.dumps(value).encode())

    def refuse(self, status, code, headers=None):
        self.json({"error": code}, status, dict(headers or {}, **{"X-Error-Code": code}))

    def send_file(self, name, data, etag):
        """The bytes of ``data`` that Range asks for, with every fault that is switched on."""
        hub = self.server.hub
        with hub.lock:
            planned = hub.answers.pop(0) if hub.answers else None
            hub._bytes_requests += 1
            if hub.expire_every and hub._bytes_requests % hub.expire_every == 0:
                hub.signature += 1
        if planned:
            return self.answer(*planned)
        data = content(data)
        headers = {"ETag": etag, "Accept-Ranges": "bytes"} if hub.validators else {}
        asked = re.match(r"bytes=(\d+)-(\d+)$", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        start, end = 0, len(data)
        if asked and condition in (None, etag):
            start, end = int(asked.group(1)), min(int(asked.group(2)) + 1, len(data))
            if start >= len(data):
                return self.answer(416, {"Content-Range": "bytes */%d" % len(data)}, b"")
            headers["Content-Range"] = "bytes %d-%d/%d" % (start, end - 1, len(data))
        if hub.on_bytes:
            hub.on_bytes(name, start, end)
        with hub.lock:
            cut = hub.cuts.pop(0) if hub.cuts and end - start > 1 else None
        self.send_response(206 if "Content-Range" in headers else 200)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        return self.send_body(memoryview(data)[start:end], cut)

    def send_body(self, view, cut):
        hub, begun = self.server.hub, time.monotonic()
        position = 0
        step = max(1024, (hub.rate or 1 << 20) // 20)
        while position < len(view):
            if cut is not None and position + step > cut:
                self.wfile.write(view[position:cut])
                hub.sent += cut - position
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            block = view[position : position + step]
            self.wfile.write(block)
            position += len(block)
            with hub.lock:
                hub.sent += len(block)
            if hub.rate:
                time.sleep(max(0.0, begun + position / hub.rate - time.monotonic()))


class HubHandler(Handler):
    name = "hub"

    def do_GET(self):
        self.record()
        hub, path = self.server.hub, urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        if path.startswith("/files/"):
            name = path[len("/files/") :]
            if name not in hub.plain:
                return self.refuse(404, "EntryNotFound")
            return self.send_file(name, hub.plain[name], hub.etags[name])
        api = re.match(r"/api/models/([^/]+/[^/]+)/(revision|tree)/(.+)$", path)
        resolve = re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)$", path)
        if not api and not resolve:
            return self.refuse(404, "NotFound")
        repo = hub.repos.get((api or resolve).group(1))
        given = self.headers.get("Authorization")
        if given and given != "Bearer %s" % hub.token:
            return self.refuse(401, "")
        if repo is None:
            return self.refuse(401 if not given else 404, "RepoNotFound")
        if (api or resolve).group(3 if api else 2) not in ("main", COMMIT):
            return self.refuse(404, "RevisionNotFound")
        if repo["gated"] and not given:
            return self.refuse(401, "GatedRepo")
        if resolve:
            return self.resolve(repo, resolve.group(1), resolve.group(3))
        if api.group(2) == "revision":
            return self.json({"sha": COMMIT})
        return self.tree(repo, int(query.get("cursor", ["0"])[0]))

    def tree(self, repo, start):
        entries = [{"type": "directory", "path": "folder", "size": 0, "oid": "0" * 40}]
        for path, data in sorted(repo["files"].items()):
            body = content(data)
            large = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 134}
            entries.append({"type": "file", "path": path, "size": len(body), "oid": "0" * 40, "lfs": large})
        page = self.server.hub.page
        headers = {}
        if start + page < len(entries):
            headers["Link"] = '<%s%s?recursive=true&cursor=%d>; rel="next"' % (
                self.server.origin,
                urllib.parse.urlsplit(self.path).path,
                start + page,
            )
        self.json(entries[start : start + page], headers=headers)

    def resolve(self, repo, name, path):
        hub = self.server.hub
        if path not in repo["files"]:
            return self.refuse(404, "EntryNotFound")
        location = "%s/%s/%s?X-Amz-Signature=%d" % (
            hub.servers["cdn"].origin,
            name,
            urllib.parse.quote(path),
            hub.signature,
        )
        if hub.redirect_to:
            location = hub.redirect_to
        return self.answer(302, {"Location": location, "X-Repo-Commit": COMMIT}, b"Found. Redirecting")


class CdnHandler(Handler):
    name = "cdn"

    def do_GET(self):
        self.record()
        hub, parts = self.server.hub, urllib.parse.urlsplit(self.path)
        if "Authorization" in self.headers:
            return self.refuse(400, "two ways to authenticate")
        signature = int(urllib.parse.parse_qs(parts.query).get("X-Amz-Signature", ["0"])[0])
        if signature < hub.signature - bool(hub.expire_every):
            hub.expired += 1
            return self.refuse(403, "Request has expired")
        owner, name, path = urllib.parse.unquote(parts.path).lstrip("/").split("/", 2)
        data = hub.repos["%s/%s" % (owner, name)]["files"][path]
        # A CDN's ETag is its own affair: here it changes with every signature.
        return self.send_file(path, data, '"cdn-%d"' % hub.signature)
