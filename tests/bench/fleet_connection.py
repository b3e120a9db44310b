"""The connection of one agent of a fleet: our own, with a token, a counter and a clock besides."""

import json
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from urllib3 import PoolManager

from nodetopo.kubeapi.access import Access
from nodetopo.kubeapi.client import TIMEOUT_S, Answer, Api, Stream

IDLE_S = 90.0
"""The API server closes a connection that is unused so long, so that the next request pays for a
new one (k8s.io/apiserver v0.36, pkg/server/secure_serving.go, IdleTimeout)."""

Asked = Counter[tuple[str, int]]
"""How often which verb was used in which second of the play."""


class Connection(Api):
    """Speaks as the owner of *token* to the server that *url* names at that moment.

    Attributes:
        lasts_s: what the last watch asked to last, seconds.
    """

    def __init__(
        self,
        url: Callable[[], str],
        token: str,
        trust: ssl.SSLContext,
        *,
        clock: Callable[[], float],
        asked: Asked,
    ) -> None:
        self._url = url
        self._pool = PoolManager(ssl_context=trust)
        self.speak_as(token)
        self._access = Access(url(), self._pool, lambda: self._header)
        self._clock = clock
        self._asked = asked
        self._used = clock()
        self.lasts_s = 0.0

    @property
    def host(self) -> str:
        """The URL that requests go to."""
        return self._url()

    def speak_as(self, token: str) -> None:
        """Go on as the owner of *token*."""
        self._header = {"authorization": f"Bearer {token}"}

    def close(self) -> None:
        """End the connection, as the end of the agent does."""
        self._pool.clear()

    def make(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post *body* to the collection at *path*.

        Raises:
            AssertionError: the API server refuses it.
        """
        answer = self._send("POST", path, {}, _JSON, json.dumps(body))
        assert answer.status == 201, answer
        return dict(answer.body)

    def merge(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Change the object at *path* by a strategic merge patch."""
        headers = {**_JSON, "Content-Type": "application/strategic-merge-patch+json"}
        return self._send("PATCH", path, {}, headers, json.dumps(body))

    def watch_metadata(self, path: str, query: Mapping[str, str], silence_s: float) -> Stream:
        """Follow as the base does, and keep in mind for how long."""
        self.lasts_s = float(query["timeoutSeconds"])
        return super().watch_metadata(path, query, silence_s)

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
        now = self._clock()
        if now - self._used > IDLE_S:
            self._pool.clear()
        self._used = now
        self._asked["WATCH" if "watch" in query else method, int(now)] += 1
        return super()._request(method, path, query, headers, body, read_s=read_s)


_JSON = {"Accept": "application/json", "Content-Type": "application/json"}
