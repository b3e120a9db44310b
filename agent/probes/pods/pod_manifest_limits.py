"""LimitRange objects: what containers of a namespace get that state nothing themselves."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.formats.fields import Object, amounts, items, object_at, text_at

LIMIT_RANGE = "LimitRange"
"""Its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Of one LimitRange.

    Attributes:
        requests, limits: resource → amount, in the units of a container.
    """

    namespace: str
    requests: Mapping[str, int]
    limits: Mapping[str, int]


def defaults_from_object(obj: Object) -> Defaults:
    """Return the defaults of the LimitRange *obj*, completed as the API server completes them.

    Limits come from ``default``, else from ``max``; requests from ``defaultRequest``, else from
    the limits, else from ``min`` (kubernetes 1.36 pkg/apis/core/v1/defaults.go,
    SetDefaults_LimitRangeItem).

    Raises:
        DecodeError: it has not the shape of one.
    """
    metadata, spec = object_at(obj, "metadata", ""), object_at(obj, "spec", "")
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for at, item in items(spec, "limits", "spec"):
        if text_at(item, "type", at) == "Container":
            most = {**amounts(item, "max", at), **amounts(item, "default", at)}
            limits |= most
            requests |= {**amounts(item, "min", at), **most, **amounts(item, "defaultRequest", at)}
    namespace = text_at(metadata, "namespace", "metadata") or "default"
    return Defaults(namespace=namespace, requests=requests, limits=limits)
