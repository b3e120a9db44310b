"""Lists of the API server, read page by page: for a person's command only.

No answer is larger than a page, and nothing here runs on a timer: the daemon has no right to
list at all.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agent.errors import ApiUnavailable
from agent.kubeapi.apply import Connect
from agent.kubeapi.client import FORBIDDEN, GONE, LATER, Answer

PAGE = 500
"""Objects in one answer, as ``kubectl`` asks for."""

_NOT_FOUND = 404


class NotServed(ApiUnavailable):
    """The API server knows no such kind, or not in this version."""


class NotAllowed(ApiUnavailable):
    """The account may not list them, whether or not there is such a kind."""


def pages_of_metadata(
    connect: Connect, path: str, query: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the metadata of each object at *path*; *query* may hold a ``labelSelector``.

    Raises:
        ApiUnavailable: they cannot be listed.
        NotServed: there is no such path.
    """
    for item in _items(connect, path, lambda asked: connect().list_metadata(path, asked), query):
        yield item.get("metadata") or {}


def pages_of_objects(connect: Connect, path: str) -> Iterator[Mapping[str, Any]]:
    """Yield each object at *path*, whole.

    Raises:
        ApiUnavailable: they cannot be listed.
        NotServed: there is no such path.
        NotAllowed: the account has no right to.
    """
    return _items(connect, path, lambda asked: connect().get(path, asked), {})


def is_served(connect: Connect, group: str) -> bool:
    """Return whether the API server knows the API *group*, as far as it tells.

    Every account may ask (ClusterRole ``system:discovery``), and what is forbidden is forbidden
    whether or not it exists.
    """
    return connect().get(f"/apis/{group}", {}).status != _NOT_FOUND


def _items(
    connect: Connect,
    path: str,
    ask: Callable[[Mapping[str, str]], Answer],
    query: Mapping[str, str],
) -> Iterator[Mapping[str, Any]]:
    asked = {"limit": str(PAGE), **query}
    while True:
        answer = ask(asked)
        if answer.status == _NOT_FOUND:
            raise NotServed(
                f"{connect().host}{path} is not there", "check the API server's address"
            )
        if answer.status != 200:
            said = answer.body.get("message") or f"HTTP {answer.status}"
            problem = f"GET {connect().host}{path}: {said}"
            cure = _cure(answer.status, path)
            kind = NotAllowed if answer.status == FORBIDDEN else ApiUnavailable
            raise kind(problem, cure, retry_after_s=answer.retry_after_s)
        yield from answer.body.get("items") or ()
        following = (answer.body.get("metadata") or {}).get("continue")
        if not following:
            return
        asked["continue"] = str(following)


def _cure(status: int, path: str) -> str:
    match status:
        case 401:
            return "check the credentials in the kubeconfig"
        case _ if status == FORBIDDEN:
            return f"grant `list` on {path.rpartition('/')[2]} to the account"
        case _ if status == GONE:
            return "the list changed too much between two pages: run it again"
        case _:
            return LATER
