"""Selectors as kubectl writes them."""

import pytest

from nodetopo.errors import InputError
from nodetopo.tools.cluster.kinds import selector
from nodetopo.tools.cluster.node import ClusterNode

NODES = (
    ClusterNode(name="a", labels={"pool": "gpu", "x.y/z": ""}),
    ClusterNode(name="b", labels={"pool": "cpu"}),
    ClusterNode(name="c", labels={}),
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "abc"),
        ("pool=gpu", "a"),
        ("pool==gpu", "a"),
        (" pool = gpu ", "a"),
        ("pool!=gpu", "bc"),
        ("pool", "ab"),
        ("!pool", "c"),
        ("x.y/z=", "a"),
        ("pool,pool!=gpu", "b"),
        ("pool=gpu,pool=cpu", ""),
    ],
)
def test_a_selector_chooses_as_kubectl_does(text: str, names: str) -> None:
    assert [node.name for node in selector(text).select(NODES)] == list(names)


@pytest.mark.parametrize(
    ("text", "sent"),
    [("a=b, c!=d,e,!f", "a=b,c!=d,e,!f"), ("a==b", "a=b"), ("a=", "a="), ("", "")],
)
def test_what_is_sent_to_the_api_server_means_the_same(text: str, sent: str) -> None:
    assert str(selector(text)) == sent


@pytest.mark.parametrize("text", ["a=b=c", "!a=b", "a in (b)", "=b", "a b", "a=b;c", "!"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a selector"):
        selector(text)
