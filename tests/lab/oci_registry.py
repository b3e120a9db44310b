"""A registry on localhost, as much of it as pushing and pulling takes.

OCI distribution specification 1.1: blobs are uploaded by POST and PUT, in one piece or by PATCH;
manifests are stored by tag and by digest. Everything is in memory.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

_BLOB = re.compile(r"/v2/(.+)/blobs/(sha256:[0-9a-f]{64})")
_UPLOAD = re.compile(r"/v2/(.+)/blobs/uploads/([0-9]*)")
_MANIFEST = re.compile(r"/v2/(.+)/manifests/([^/]+)")


class Registry(ThreadingHTTPServer):
    """The server, and what was pushed to it.

    Attributes:
        blobs: by digest.
        manifests: media type and content, by repository and tag or digest.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.uploads: dict[str, bytes] = {}

    @property
    def address(self) -> str:
        """The host and port, as in the name of an image."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/v2/":
            self._answer(200)
        elif (found := _BLOB.fullmatch(path)) and found[2] in self.server.blobs:
            self._answer(200, self.server.blobs[found[2]], digest=found[2])
        elif (found := _MANIFEST.fullmatch(path)) and (
            stored := self.server.manifests.get((found[1], found[2]))
        ):
            kind, content = stored
            self._answer(200, content, digest=_digest(content), kind=kind)
        else:
            self._answer(404)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def do_POST(self) -> None:
        found = _UPLOAD.fullmatch(urlsplit(self.path).path)
        assert found, self.path
        self._read()
        number = str(len(self.server.uploads) + 1)
        self.server.uploads[number] = b""
        self._answer(202, location=f"/v2/{found[1]}/blobs/uploads/{number}")

    def do_PATCH(self) -> None:
        found = _UPLOAD.fullmatch(urlsplit(self.path).path)
        assert found, self.path
        self.server.uploads[found[2]] += self._read()
        self._answer(202, location=self.path)

    def do_PUT(self) -> None:
        url = urlsplit(self.path)
        content = self._read()
        if found := _UPLOAD.fullmatch(url.path):
            (digest,) = parse_qs(url.query)["digest"]
            content = self.server.uploads.pop(found[2]) + content
            assert _digest(content) == digest
            self.server.blobs[digest] = content
            self._answer(201, location=f"/v2/{found[1]}/blobs/{digest}", digest=digest)
            return
        found = _MANIFEST.fullmatch(url.path)
        assert found, self.path
        stored = (self.headers["Content-Type"], content)
        digest = _digest(content)
        for name in (found[2], digest):
            self.server.manifests[found[1], name] = stored
        self._answer(201, location=f"/v2/{found[1]}/manifests/{digest}", digest=digest)

    def _read(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(
        self,
        status: int,
        content: bytes = b"",
        *,
        digest: str = "",
        kind: str = "application/octet-stream",
        location: str = "",
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", kind)
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        if location:
            self.send_header("Location", location)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextmanager
def registry() -> Iterator[Registry]:
    """Run a registry."""
    server = Registry()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
