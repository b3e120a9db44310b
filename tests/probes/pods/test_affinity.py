"""Which pods the scheduler keeps off each other's node."""

from typing import Any

import pytest

from nodetopo.probes.pods.affinity import HOSTNAME, are_apart, company_of

_LABELS = {"app": "nccl", "role": "worker"}


def _apart(term: dict[str, Any], labels: dict[str, str], namespace: str = "ml") -> bool | None:
    terms = [{"topologyKey": HOSTNAME, **term}]
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    spec = {"affinity": {"podAntiAffinity": rule}}
    one = company_of("ml", {"labels": _LABELS}, spec)
    other = company_of(namespace, {"labels": labels}, {})
    assert are_apart(one, other) == are_apart(other, one)
    return are_apart(one, other)


def _selects(*expressions: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels, "matchExpressions": list(expressions)}}


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (_selects(app="nccl"), True),
        (_selects(app="other"), False),
        (_selects(app="nccl", role="master"), False),
        (_selects(), True),
        ({}, False),
        ({"labelSelector": None}, False),
        ({**_selects(app="nccl"), "topologyKey": "topology.kubernetes.io/zone"}, False),
        (_selects({"key": "app", "operator": "In", "values": ["nccl", "x"]}), True),
        (_selects({"key": "app", "operator": "NotIn", "values": ["nccl"]}), False),
        (_selects({"key": "none", "operator": "NotIn", "values": ["nccl"]}), True),
        (_selects({"key": "app", "operator": "Exists"}), True),
        (_selects({"key": "none", "operator": "Exists"}), False),
        (_selects({"key": "none", "operator": "DoesNotExist"}), True),
        (_selects({"key": "app", "operator": "Near", "values": ["nccl"]}), False),
        ({**_selects(app="nccl"), "matchLabelKeys": ["role"]}, True),
        ({**_selects(app="nccl"), "mismatchLabelKeys": ["role"]}, False),
        ({**_selects(app="nccl"), "namespaces": ["other"]}, False),
        ({**_selects(app="nccl"), "namespaces": ["other", "ml"]}, True),
    ],
)
def test_a_term_keeps_those_away_that_its_selector_matches(
    term: dict[str, Any], *, expected: bool
) -> None:
    assert _apart(term, _LABELS) is expected


def test_other_namespaces_are_matched_only_where_the_term_chooses_them() -> None:
    term = _selects(app="nccl")

    assert not _apart(term, _LABELS, "other")
    assert _apart({**term, "namespaceSelector": {}}, _LABELS, "other")
    assert not _apart({**term, "namespaceSelector": {"matchLabels": {"a": "b"}}}, _LABELS, "other")


@pytest.mark.parametrize("odd", [7, "x", [7], {"podAntiAffinity": [{}]}])
def test_what_the_api_server_would_refuse_keeps_nothing_away(odd: Any) -> None:
    pod = company_of("ml", {"labels": odd}, {"affinity": odd})

    assert not are_apart(pod, pod)
