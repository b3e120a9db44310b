"""A small REST client for the tests: JSON over TLS to the lab's API server."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

_TIMEOUT_S = 120.0

Object = dict[str, Any]
"""A Kubernetes object as JSON gives it."""


class ApiError(AssertionError):
    """The API server refused; *code* is the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"HTTP {code}: {text}")
        self.code = code


class Api:
    """Speaks as the owner of *token* to the server at *url*; *authority* is its CA."""

    def __init__(self, url: str, token: str, authority: Path) -> None:
        self.url = url
        self.token = token
        self.authority = authority

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        # Made late, when the server has written its certificate; and past any proxy.
        trust = ssl.create_default_context(cafile=self.authority)
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )

    def get(self, path: str) -> Object:
        """Return the object or list at *path*."""
        return self._object("GET", path)

    def find(self, path: str) -> Object | None:
        """Return the object at *path*; ``None`` if there is none."""
        try:
            return self._object("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """Post *body* to the collection at *path*."""
        return self._object("POST", path, body)

    def apply(self, path: str, body: Mapping[str, Any], *, is_dry_run: bool = False) -> Object:
        """Server-side apply *body* at *path*, unknown fields refused."""
        query = "fieldManager=lab&force=true&fieldValidation=Strict"
        query += "&dryRun=All" if is_dry_run else ""
        return self._object("PATCH", f"{path}?{query}", body, "application/apply-patch+yaml")

    def merge(self, path: str, body: Mapping[str, Any]) -> Object:
        """Merge-patch the object at *path*."""
        return self._object("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str, *, grace_s: int = 0) -> None:
        """Delete the object at *path*, at once unless there is a grace period."""
        self._object("DELETE", f"{path}?gracePeriodSeconds={grace_s}")

    def text(self, path: str) -> str:
        """Return the plain text at *path*."""
        return self._send("GET", path, None, "application/json")

    def _object(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
    ) -> Object:
        answer: Object = json.loads(self._send(method, path, body, kind))
        return answer

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None, kind: str) -> str:
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind},
            method=method,
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                text: bytes = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, error.read().decode(errors="replace")) from None
        return text.decode()
