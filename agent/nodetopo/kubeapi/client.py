"""The client of the API server: raw REST paths over one kept connection, pages, and streams.

The typed clients of the ``kubernetes`` package cost 21 MiB more than its configuration and
``ApiClient`` alone, and no type of theirs is needed to read a map of labels.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from msgspec import Struct

from nodetopo.backoff import note_answer
from nodetopo.errors import ApiUnavailable
from nodetopo.formats.responses import EndlessError, body_of
from nodetopo.kubeapi.access import access
from nodetopo.model.digits import is_digits

FORBIDDEN = 403

NOT_FOUND = 404

INVALID = 422
"""HTTP status of a query that the API server understands and does not take."""

GONE = 410
"""HTTP status of a watch from a version, or a page of a list, that the API server has forgotten."""

LATER = "it is tried again later"

TIMEOUT_S = 10.0
"""Longest wait for one answer; the API server itself gives up on a mutation after 34 s."""

LONGEST_PAUSE_S = 60.0
"""The API server requests a second; a proxy that requests a day would silence us for as long."""

MAX_EVENT = 1 << 20
"""Bytes of one event with metadata; a Node's has some 7 KB, a whole Node under 100 KB."""

MAX_OBJECT = 4 << 20
"""Bytes of one event with a whole object; etcd takes objects of 1.5 MiB (``--max-request-bytes``),
which are more as JSON."""

MAX_LIST = 8 << 20
"""Bytes of a list that the daemon asks for, within its container's memory."""

LEAST_RATE = 256 << 10
"""Bytes/s of a larger list, which only commands ask for: at this rate, with :data:`TIMEOUT_S` in
addition, it can take as long as it needs."""

MAX_REFUSAL = 1 << 16
"""Bytes of a refusal of a watch; a Status object has some hundred."""

_OK = range(200, 300)

_JSON = "application/json"

_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Ask for metadata without spec and status: 7 instead of 17 KB for a Node."""

_METADATA_LISTED = _METADATA_ONLY.replace("PartialObjectMetadata", "PartialObjectMetadataList")
"""The same for a list."""

_METADATA_WATCHED = f"{_METADATA_ONLY},{_JSON}"
"""The same for a watch; a proxy without support for this form can send whole objects."""


class Unreachable(ApiUnavailable):
    """No HTTP answer came: the connection failed, or took too long."""


class Refused(ApiUnavailable):
    """The account lacks the right: a retry is useless before it is granted."""


class NotServed(Refused):
    """The path does not exist: the API server is too old."""


class Invalid(ApiUnavailable):
    """The API server rejects the query: its feature might be off."""


class Expired(Exception):  # noqa: N818 - a state of the watch
    """The server no longer has the version from which to follow: start from the newest one."""


class Answer(Struct, frozen=True, kw_only=True):
    """An answer: the HTTP status, the JSON object, the pause that the server requested."""

    status: int
    body: Mapping[str, Any]  # empty where the answer is no JSON object
    # Requested by the server, at most `LONGEST_PAUSE_S`; None: no pause.
    retry_after_s: float | None

    @property
    def problem(self) -> str:
        """The message of a refusal, or its HTTP status."""
        return str(self.body.get("message") or f"HTTP {self.status}")


class Api:
    """A connection to the API server of *kubeconfig*, or else of the own cluster.

    Everything here raises ApiUnavailable: without a usable kubeconfig or service account, without
    an HTTP answer (the outcome of a write is then unknown), and for an answer beyond *max_bytes*.
    """

    def __init__(self, kubeconfig: Path | None, context: str | None = None) -> None:
        self._access = access(kubeconfig, context)

    @property
    def host(self) -> str:
        """The URL that requests go to, for messages."""
        return self._access.host

    def get_metadata(self, path: str, query: Mapping[str, str]) -> Answer:
        """Read the metadata of the object at *path*; any HTTP status is an answer."""
        return self._send("GET", path, query, {"Accept": _METADATA_ONLY}, None)

    def list_metadata(self, path: str, query: Mapping[str, str], max_bytes: int) -> Answer:
        """Read the metadata of the objects at *path*; any HTTP status is an answer."""
        return self._send(
            "GET", path, query, {"Accept": _METADATA_LISTED}, None, max_bytes=max_bytes
        )

    def get(self, path: str, query: Mapping[str, str], max_bytes: int = MAX_OBJECT) -> Answer:
        """Read the whole object, or list, at *path*; any HTTP status is an answer."""
        return self._send("GET", path, query, {"Accept": _JSON}, None, max_bytes=max_bytes)

    def delete(self, path: str) -> Answer:
        """Delete the object at *path*; any HTTP status is an answer."""
        return self._send("DELETE", path, {}, {"Accept": _JSON}, None)

    def apply(
        self,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any],
        *,
        is_whole: bool = False,
    ) -> Answer:
        """Send *body* as a server-side apply; any HTTP status is an answer.

        The answer has the object's metadata, and with *is_whole* all of it.
        """
        # JSON is YAML, and this media type is the only one that older servers take.
        accepted = _JSON if is_whole else _METADATA_ONLY
        headers = {"Accept": accepted, "Content-Type": "application/apply-patch+yaml"}
        return self._send("PATCH", path, query, headers, json.dumps(body))

    def create(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        """Create the object *body* in the collection at *path*; any HTTP status is an answer."""
        headers = {"Accept": _METADATA_ONLY, "Content-Type": _JSON}
        return self._send("POST", path, query, headers, json.dumps(body))

    def ask(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        grant: str,
        max_bytes: int,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """Return the whole object at *path*, or the answer to *body*, of limited size.

        Args:
            grant: the cure for missing permission, e.g. ``allow `list` on pods``.

        Raises:
            Unreachable: no HTTP answer came.
            ApiUnavailable: a refusal, an answer of more than *max_bytes*, or one that is not JSON.
        """
        method = "GET" if body is None else "POST"
        sent = None if body is None else json.dumps(body)
        headers = {"Accept": _JSON, "Content-Type": _JSON}
        answer = self._send(method, path, query, headers, sent, max_bytes=max_bytes)
        if answer.status not in (200, 201):
            cure = f"{grant} to this account" if answer.status == FORBIDDEN else ""
            raise ApiUnavailable(f"{method} {self.host}{path}: {answer.problem}", cure)
        return answer.body

    def watch_metadata(self, path: str, query: Mapping[str, str], silence_s: float) -> "Stream":
        """Follow the metadata of the objects at *path*, as :meth:`watch` follows whole ones."""
        return self._watch(path, query, _METADATA_WATCHED, silence_s, MAX_EVENT)

    def watch(self, path: str, query: Mapping[str, str], silence_s: float) -> "Stream":
        """Follow the objects at *path*; the caller closes the stream.

        It ends when the server ends it, and is lost after *silence_s* without data.

        Raises:
            ApiUnavailable: no stream started; includes the pause requested by the server, if any.
            Refused: the account lacks permission to watch, or NotServed: the path does not exist.
            Invalid: the API server rejects the query.
            Expired: the server no longer has the version in *query*.
        """
        return self._watch(path, query, _JSON, silence_s, MAX_OBJECT)

    def _watch(
        self, path: str, query: Mapping[str, str], form: str, silence_s: float, max_event: int
    ) -> "Stream":
        response = self._request("GET", path, query, {"Accept": form}, read_s=silence_s)
        if response.status == 200:
            return Stream(response, f"{self.host}{path}", max_event)
        try:
            content = body_of(response, MAX_REFUSAL, TIMEOUT_S)
        except (_http_error(), EndlessError):  # the status is enough
            content = bytearray()
        finally:
            response.close()
        refusal = _answer(response, content)
        if refusal.status == GONE:
            raise Expired(refusal.problem)
        problem = f"watch {self.host}{path}: {refusal.problem}"
        if refusal.status == NOT_FOUND:
            cure = "the cluster may be older than what is watched"
            raise NotServed(problem, cure, retry_after_s=refusal.retry_after_s)
        if refusal.status == FORBIDDEN:
            cure = f"grant `watch` on {path.rpartition('/')[2]} to the account"
            raise Refused(problem, cure, retry_after_s=refusal.retry_after_s)
        error = Invalid if refusal.status == INVALID else ApiUnavailable
        raise error(problem, LATER, retry_after_s=refusal.retry_after_s)

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: str | None,
        *,
        max_bytes: int = MAX_OBJECT,
    ) -> Answer:
        response = self._request(method, path, query, headers, body)
        with self._reaching(method, path):
            try:
                rate = LEAST_RATE if max_bytes > MAX_LIST else math.inf
                content = body_of(response, max_bytes, TIMEOUT_S, rate)
            except BaseException:
                response.close()  # what is left of it would begin the next answer
                raise
            finally:
                response.release_conn()
        answer = _answer(response, content)
        if answer.status in _OK:
            note_answer()
            if content and not answer.body:
                cause = f"{method} {self.host}{path}: the answer holds no object"
                raise ApiUnavailable(cause, f"is there a proxy in between? {LATER}")
        return answer

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: str | None = None,
        *,
        read_s: float = TIMEOUT_S,
    ) -> Any:
        """Send one request; the body is left to be read, each part within *read_s*."""
        from urllib3 import Timeout  # noqa: PLC0415 - costs memory before use

        credentials = self._access.credentials()
        with self._reaching(method, path):
            return self._access.pool.request(
                method,
                f"{self.host}{path}?{urlencode(query)}",
                body=body,
                headers={"User-Agent": "nodetopo", **credentials, **headers},
                timeout=Timeout(connect=TIMEOUT_S, read=read_s),
                preload_content=False,
                # urllib3 would obey Retry-After by sleeping here, with the caller's thread.
                retries=False,
            )

    @contextmanager
    def _reaching(self, method: str, path: str) -> Iterator[None]:
        """Raise Unreachable for a connection that fails, ApiUnavailable for an endless answer."""
        try:
            yield
        except EndlessError as error:
            cure = f"see what answers at this address, maybe a proxy; {LATER}"
            raise ApiUnavailable(f"{method} {self.host}{path}: {error}", cure) from error
        except _http_error() as error:
            raise Unreachable(
                f"{method} {self.host}{path}: {error}",
                "check the address in the kubeconfig and that the API server runs",
            ) from error


def _http_error() -> type[Exception]:
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - costs memory before use

    return HTTPError


class Stream:
    """JSON objects, one a line, of one HTTP answer (Kubernetes API concepts, "watch")."""

    def __init__(self, response: Any, name: str, max_event: int = MAX_EVENT) -> None:
        """Take over *response*, which was not read yet; *name* is for messages."""
        self._response = response
        self._name = name
        self._max_event = max_event
        self._is_cancelled = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Close the connection, which cannot be used again."""
        self._response.close()

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Yield each event until the server ends the stream, or :meth:`cancel` does.

        Raises:
            ApiUnavailable: the connection was lost, or an event is invalid.
        """
        for line in self._lines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
            if not isinstance(event, dict):
                raise ApiUnavailable(f"watch {self._name}: a line is no event")
            note_answer()
            yield event

    def cancel(self) -> None:
        """End the stream at once, from any thread."""
        self._is_cancelled = True
        with suppress(ValueError, RuntimeError, OSError):  # it has ended already
            self._response.shutdown()

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        chunks = self._response.stream(self._max_event, decode_content=False)
        while True:
            try:
                chunk = next(chunks, None)
            except (_http_error(), OSError, ValueError) as error:
                if self._is_cancelled:
                    return
                raise ApiUnavailable(f"watch {self._name}: {error}") from error
            if chunk is None or self._is_cancelled:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > self._max_event:
                raise ApiUnavailable(
                    f"watch {self._name}: an event of over {self._max_event} bytes"
                )
            yield from (line for line in lines if line.strip())


def pages(
    get: Callable[[Mapping[str, str]], Mapping[str, Any]], query: Mapping[str, str], size: int
) -> Iterator[Mapping[str, Any]]:
    """Yield a list page by page (Kubernetes API concepts, "Retrieving large results sets").

    Args:
        get: returns the page for a query; its exceptions end the list.
    """
    asked = {**query, "limit": str(size)}
    while True:
        page = get(asked)
        yield page
        token = following_page(page)
        if token is None:
            return
        asked["continue"] = token


def following_page(page: Mapping[str, Any]) -> str | None:
    """Return the ``continue`` token for the page behind *page*; None where it is the last one."""
    metadata = page.get("metadata")
    token = metadata.get("continue") if isinstance(metadata, dict) else None
    return token if isinstance(token, str) and token else None


def _answer(response: Any, content: bytearray) -> Answer:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):  # a proxy answered with something else
        body = None
    # The API server sends whole seconds; the date form of RFC 9110 comes from proxies only.
    pause = response.headers.get("Retry-After")
    is_pause = pause is not None and is_digits(pause)
    return Answer(
        status=response.status,
        body=body if isinstance(body, dict) else {},
        retry_after_s=min(float(pause), LONGEST_PAUSE_S) if is_pause else None,
    )
