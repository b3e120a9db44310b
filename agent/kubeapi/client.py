"""The API server, asked by raw REST paths over one kept connection.

The typed clients of the ``kubernetes`` package cost 21 MiB more than its configuration and
``ApiClient`` alone, and no type of theirs is needed to read a map of labels.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from agent.errors import ApiUnavailable

# The events of one watch as they come, and a way to end it from another thread.

MAX_EVENT = 1 << 20
"""Bytes of one event; the metadata of a Node has some 7 KB, a whole Node under 100 KB."""


class Expired(Exception):  # noqa: N818 - a state of the watch
    """The server no longer knows the version from which to follow: begin anew."""


class Stream:
    """JSON objects, one a line, off one HTTP answer (Kubernetes API concepts, "watch")."""

    def __init__(self, response: Any, name: str, max_event: int = MAX_EVENT) -> None:
        """Take over *response*, which was not read yet; *name* is for messages."""
        self._response = response
        self._name = name
        self._max_event = max_event
        self._is_cancelled = False

    def __enter__(self) -> Self:
        """Return the stream, to be closed at the end."""
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
            ApiUnavailable: the connection was lost, or what came is no event.
        """
        for line in self._lines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                event = None
            if not isinstance(event, dict):
                raise ApiUnavailable(f"watch {self._name}: a line is no event")
            yield event

    def cancel(self) -> None:
        """End the stream at once, from any thread."""
        self._is_cancelled = True
        with suppress(ValueError, RuntimeError, OSError):  # it has ended already
            self._response.shutdown()

    def _lines(self) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - costs memory before use

        held = b""
        parts = self._response.stream(self._max_event, decode_content=False)
        while True:
            try:
                part = next(parts, None)
            except (HTTPError, OSError, ValueError) as error:
                if self._is_cancelled:
                    return
                raise ApiUnavailable(f"watch {self._name}: {error}") from error
            if part is None or self._is_cancelled:
                return
            *whole, held = (held + part).split(b"\n")
            if len(held) > self._max_event:
                raise ApiUnavailable(
                    f"watch {self._name}: an event of over {self._max_event} bytes"
                )
            yield from (line for line in whole if line.strip())


TIMEOUT_S = 10.0
"""Patience for one request; the API server itself gives up on a mutation after 34 s."""


_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Ask for metadata without spec and status: 7 instead of 17 KB for a Node."""


_METADATA_LISTED = _METADATA_ONLY.replace("PartialObjectMetadata", "PartialObjectMetadataList")
"""The same for a list."""


_METADATA_WATCHED = f"{_METADATA_ONLY},application/json"
"""The same for a watch; a proxy that knows no such form may send whole objects."""


GONE = 410
"""HTTP status of a watch from a version that the API server has forgotten."""


FORBIDDEN = 403


LATER = "it is tried again later"


LONGEST_PAUSE_S = 3600.0
"""More than an hour the API server never asks for; a proxy that does would silence us for good."""


MAX_OBJECT = 4 << 20
"""Bytes of one event with a whole object; etcd takes objects of 1.5 MiB (``--max-request-bytes``),
which are more as JSON."""


MAX_REFUSAL = 1 << 16
"""Bytes of a refusal that are read; a Status object has some hundred."""


class Refused(ApiUnavailable):
    """The account may not do this: asking again does not help before somebody grants it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: the HTTP status, the JSON object, the pause the server asked for."""

    status: int
    body: Mapping[str, Any]
    retry_after_s: float | None


class Api:
    """A connection to the API server of *kubeconfig*, or else of the cluster it runs in.

    Raises:
        ApiUnavailable: neither names a server that can be spoken to.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        self._client = _client(kubeconfig)

    @property
    def host(self) -> str:
        """The URL that requests go to, for messages."""
        return str(self._client.configuration.host)

    def get_metadata(self, path: str, query: Mapping[str, str]) -> Answer:
        """Read the metadata of the object at *path*; any HTTP status is an answer.

        Raises:
            ApiUnavailable: no HTTP answer came.
        """
        return self._send("GET", path, query, {"Accept": _METADATA_ONLY}, None)

    def list_metadata(self, path: str, query: Mapping[str, str]) -> Answer:
        """Read the metadata of the objects at *path*; any HTTP status is an answer.

        Raises:
            ApiUnavailable: no HTTP answer came.
        """
        return self._send("GET", path, query, {"Accept": _METADATA_LISTED}, None)

    def get(self, path: str, query: Mapping[str, str]) -> Answer:
        """Read the whole object at *path*; any HTTP status is an answer.

        Raises:
            ApiUnavailable: no HTTP answer came.
        """
        return self._send("GET", path, query, {"Accept": "application/json"}, None)

    def delete(self, path: str) -> Answer:
        """Delete the object at *path*; any HTTP status is an answer.

        Raises:
            ApiUnavailable: no HTTP answer came, and the outcome is unknown.
        """
        return self._send("DELETE", path, {}, {"Accept": "application/json"}, None)

    def apply(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        """Send *body* as a server-side apply; any HTTP status is an answer.

        Raises:
            ApiUnavailable: no HTTP answer came, and the outcome is unknown.
        """
        # JSON is YAML, and this media type is the only one that older servers take.
        headers = {"Accept": _METADATA_ONLY, "Content-Type": "application/apply-patch+yaml"}
        return self._send("PATCH", path, query, headers, json.dumps(body))

    def create(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        """Create the object *body* in the collection at *path*; any HTTP status is an answer.

        Raises:
            ApiUnavailable: no HTTP answer came, and the outcome is unknown.
        """
        headers = {"Accept": _METADATA_ONLY, "Content-Type": "application/json"}
        return self._send("POST", path, query, headers, json.dumps(body))

    def watch_metadata(self, path: str, query: Mapping[str, str], silence_s: float) -> Stream:
        """Follow the metadata of the objects at *path*, as :meth:`watch` follows whole ones."""
        return self._watch(path, query, _METADATA_WATCHED, silence_s, MAX_EVENT)

    def watch(self, path: str, query: Mapping[str, str], silence_s: float) -> Stream:
        """Follow the objects at *path*; the stream is to be closed.

        It ends by itself when the server ends it, and is lost when nothing at all comes for
        *silence_s*.

        Raises:
            ApiUnavailable: no stream came, with the pause that the server asked for, if any.
            Refused: the account may not watch them.
            Expired: the version that *query* begins at is no longer known.
        """
        return self._watch(path, query, "application/json", silence_s, MAX_OBJECT)

    def _watch(
        self, path: str, query: Mapping[str, str], form: str, silence_s: float, most: int
    ) -> Stream:
        response = self._request("GET", path, query, {"Accept": form}, read_s=silence_s)
        if response.status == 200:
            return Stream(response, f"{self.host}{path}", most)
        found = Answer(
            status=response.status,
            body=_refusal(response),
            retry_after_s=_seconds(response.headers.get("Retry-After")),
        )
        said = found.body.get("message") or f"HTTP {found.status}"
        if found.status == GONE:
            raise Expired(said)
        problem = f"watch {self.host}{path}: {said}"
        if found.status == FORBIDDEN:
            cure = f"grant `watch` on {path.rpartition('/')[2]} to the account"
            raise Refused(problem, cure, retry_after_s=found.retry_after_s)
        raise ApiUnavailable(problem, LATER, retry_after_s=found.retry_after_s)

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: str | None,
    ) -> Answer:
        response = self._request(method, path, query, headers, body)
        return Answer(
            status=response.status,
            body=_object(response.data),
            retry_after_s=_seconds(response.headers.get("Retry-After")),
        )

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: str | None = None,
        *,
        read_s: float | None = None,
    ) -> Any:
        """Send one request; with *read_s* the body stays to be read, each part within that."""
        from urllib3 import Timeout  # noqa: PLC0415 - costs memory before use
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - same

        try:
            return self._client.rest_client.pool_manager.request(
                method,
                f"{self.host}{path}?{urlencode(query)}",
                body=body,
                headers={**_authorization(self._client.configuration), **headers},
                timeout=Timeout(connect=TIMEOUT_S, read=read_s or TIMEOUT_S),
                preload_content=read_s is None,
                # urllib3 would obey Retry-After by sleeping here, with the caller's thread.
                retries=False,
            )
        except HTTPError as error:
            raise ApiUnavailable(
                f"{method} {self.host}{path}: {error}",
                "check the address in the kubeconfig and that the API server runs",
            ) from error


def _client(kubeconfig: Path | None) -> Any:
    # Imported here: 21 MiB that a command line without a cluster never needs.
    from kubernetes import config  # noqa: PLC0415
    from kubernetes.client import ApiClient, Configuration  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    # The package is typed, but for this module of it.
    load: Any = config
    try:
        if kubeconfig is not None:
            return load.new_client_from_config(str(kubeconfig), persist_config=False)
        if not os.environ.get("KUBERNETES_SERVICE_HOST"):
            raise ApiUnavailable("no API server is known", "give --kubeconfig, or run in a pod")
        configuration = Configuration()
        load.load_incluster_config(client_configuration=configuration)
        return ApiClient(configuration)
    # The package does not check types: a file that is no kubeconfig ends in any of these.
    except (
        config.ConfigException,
        OSError,
        YAMLError,
        ValueError,
        TypeError,
        AttributeError,
    ) as error:
        origin = kubeconfig or "the service account of this pod"
        raise ApiUnavailable(
            f"cannot use {origin}: {' '.join(str(error).split())}",
            "give a readable kubeconfig with --kubeconfig, or mount the service account token",
        ) from error


def _authorization(configuration: Any) -> dict[str, str]:
    from kubernetes.config import ConfigException  # noqa: PLC0415

    try:
        # Asking for the settings also rereads a rotated service account token.
        settings = configuration.auth_settings().values()
    except (ConfigException, OSError) as error:
        raise ApiUnavailable(
            f"cannot read the service account token: {error}",
            "mount the token, and give the account back if it was deleted",
        ) from error
    headers = {item["key"]: item["value"] for item in settings if item["in"] == "header"}
    return {"User-Agent": "nodetopo", **headers}


def _refusal(response: Any) -> Mapping[str, Any]:
    """Return the object that *response* refuses with; empty where its body is lost on the way."""
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - costs memory before use

    try:
        return _object(response.read(MAX_REFUSAL))
    except HTTPError:
        return {}
    finally:
        response.close()


def _object(data: bytes) -> Mapping[str, Any]:
    """Return the JSON object in *data*; empty where a proxy answered with something else."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _seconds(retry_after: str | None) -> float | None:
    # The API server sends whole seconds; the date form of RFC 9110 comes from proxies only.
    if retry_after is None or not retry_after.isdecimal():
        return None
    return min(float(retry_after), LONGEST_PAUSE_S)
