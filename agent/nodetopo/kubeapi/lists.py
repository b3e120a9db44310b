"""Lists of objects, read page by page, for interactive commands.

No answer is larger than a page, and no timer calls this: the daemon has no permission to list.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodetopo.errors import ApiUnavailable
from nodetopo.formats.responses import part, parts
from nodetopo.kubeapi.apply import Connect
from nodetopo.kubeapi.client import FORBIDDEN, GONE, LATER, NOT_FOUND, Answer, pages

OK = 200

PAGE = 500
"""Objects in one answer, as requested by ``kubectl``."""


MAX_PAGE = 128 << 20
"""Bytes of one answer of a command: 500 objects of 256 KiB; a Node has up to 50 KB."""


class NotServed(ApiUnavailable):
    """The API server does not serve this kind, or not in this version."""


class NotAllowed(ApiUnavailable):
    """The account cannot list the kind, which might not exist."""


def list_metadata(
    connect: Connect, path: str, query: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the metadata of each object at *path*; *query* can have a ``labelSelector``.

    Raises:
        ApiUnavailable: they cannot be listed.
        NotServed: the path does not exist.
    """
    for item in _items(
        connect, path, lambda asked: connect().list_metadata(path, asked, MAX_PAGE), query
    ):
        yield part(item, "metadata")


def list_objects(
    connect: Connect, path: str, max_bytes: int = MAX_PAGE
) -> Iterator[Mapping[str, Any]]:
    """Yield each object at *path*, whole; a page of them has at most *max_bytes*.

    Raises:
        ApiUnavailable: they cannot be listed.
        NotServed: there is no such path.
        NotAllowed: the account has no right to.
    """
    return _items(connect, path, lambda asked: connect().get(path, asked, max_bytes), {})


def is_served(connect: Connect, group: str) -> bool:
    """Return whether the API server serves the API *group*; True if unknown.

    Every account can ask (ClusterRole ``system:discovery``), whereas a forbidden list does not
    reveal whether its kind exists.
    """
    return connect().get(f"/apis/{group}", {}).status != NOT_FOUND


def serves(connect: Connect, version: str, plural: str) -> bool | None:
    """Return whether the API server serves *plural* in *version*, such as ``scheduling.k8s.io/v1``.

    ``None`` if unknown.
    """
    answer = connect().get(f"/apis/{version}", {})
    if answer.status == NOT_FOUND:
        return False
    if answer.status != OK:
        return None
    return any(resource.get("name") == plural for resource in parts(answer.body, "resources"))


def _items(
    connect: Connect,
    path: str,
    send: Callable[[Mapping[str, str]], Answer],
    query: Mapping[str, str],
) -> Iterator[Mapping[str, Any]]:
    url = f"{connect().host}{path}"

    def page(asked: Mapping[str, str]) -> Mapping[str, Any]:
        answer = send(asked)
        error: type[ApiUnavailable] = ApiUnavailable
        match answer.status:
            case _ if answer.status == OK:
                return answer.body
            case 401:
                cure = "check the credentials in the kubeconfig"
            case _ if answer.status == FORBIDDEN:
                error = NotAllowed
                cure = f"grant `list` on {path.rpartition('/')[2]} to the account"
            case _ if answer.status == NOT_FOUND:
                raise NotServed(f"{url} is not there", "check the API server's address")
            case _ if answer.status == GONE:
                cure = "the list changed too much between two pages: run it again"
            case _:
                cure = LATER
        raise error(f"GET {url}: {answer.problem}", cure, retry_after_s=answer.retry_after_s)

    for body in pages(page, query, PAGE):
        yield from parts(body, "items")
