"""Lists that are read page by page."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi.client import following_page, pages
from nodetopo.kubeapi.lists import list_metadata, list_objects
from tests.kubeapi.fake_api_server import DirectApi
from tests.kubeapi.fake_lists import FakeLists


class Broken(FakeLists):
    """Answers every list with *body*."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.body = body

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Mapping[str, Any]
    ) -> tuple[int, Mapping[str, str], Mapping[str, Any]]:
        """Return the body."""
        del method, path, query, body
        return 200, {}, self.body


def test_each_page_is_asked_for_with_the_token_of_the_one_before() -> None:
    asked: list[Mapping[str, str]] = []

    def page(query: Mapping[str, str]) -> Mapping[str, Any]:
        asked.append(dict(query))
        return {"metadata": {"continue": "b"} if len(asked) == 1 else {}, "number": len(asked)}

    assert [it["number"] for it in pages(page, {"labelSelector": "a"}, 7)] == [1, 2]
    first = {"labelSelector": "a", "limit": "7"}
    assert asked == [first, {**first, "continue": "b"}]


@pytest.mark.parametrize("metadata", [None, [], {}, {"continue": ""}, {"continue": 5}])
def test_a_page_without_a_token_is_the_last_one(metadata: Any) -> None:
    assert following_page({"metadata": metadata}) is None


@pytest.mark.parametrize("items", ["text", {"a": 1}, [5], ["text"]])
def test_a_list_of_anything_but_objects_is_unavailable(items: Any) -> None:
    api = DirectApi(Broken({"items": items}))
    with pytest.raises(ApiUnavailable, match="items is no list of objects"):
        list(list_objects(lambda: api, "/apis/x/v1/things"))


def test_metadata_that_is_no_object_is_unavailable() -> None:
    api = DirectApi(Broken({"items": [{"metadata": "text"}]}))
    with pytest.raises(ApiUnavailable, match="metadata is no object"):
        list(list_metadata(lambda: api, "/api/v1/nodes", {}))
