"""A container of a pod's spec, reduced to what placement depends on."""

import re

from agent.errors import DecodeError
from agent.formats.fields import Object, amounts, flag_at, items, object_at, text_at
from agent.model.pod import Container, ContainerKind

VARIABLES = ("NCCL_", "NVIDIA_", "CUDA_", "UCX_")
"""How the names of the variables begin that are read; all others may be secrets."""

_SECRETS = re.compile(
    r"_(?:API)?(?:KEYS?|TOKENS?|SECRETS?|PASS(?:WD|WORD)?|CREDENTIALS?|AUTH)(?:_|$)", re.IGNORECASE
)
"""In the names of those that are secrets all the same, such as ``NVIDIA_API_KEY``; the
``NCCL_IB_PKEY`` is an index."""


def container(item: Object, kind: ContainerKind, at: str) -> Container:
    """Return the container *item* of a pod, which is at the path *at*.

    Raises:
        DecodeError: it has not the shape of a container.
    """
    name = text_at(item, "name", at)
    if not name:
        raise DecodeError(f"{at}.name", "missing")
    resources = object_at(item, "resources", at)
    security = object_at(item, "securityContext", at)
    return Container(
        name=name,
        kind=kind,
        requests=amounts(resources, "requests", f"{at}.resources"),
        limits=amounts(resources, "limits", f"{at}.resources"),
        image=text_at(item, "image", at) or None,
        environment=_environment(item, at),
        has_hidden_environment=any(True for _ in items(item, "envFrom", at)),
        is_privileged=flag_at(security, "privileged", f"{at}.securityContext"),
        capabilities=_capabilities(security, f"{at}.securityContext"),
    )


def _environment(item: Object, at: str) -> dict[str, str | None]:
    """Return the variables that may be read; of two with one name the last one counts."""
    found: dict[str, str | None] = {}
    for place, variable in items(item, "env", at):
        name = text_at(variable, "name", place) or ""
        if name.startswith(VARIABLES):
            is_hidden = variable.get("valueFrom") is not None or _SECRETS.search(name)
            value = None if is_hidden else text_at(variable, "value", place) or ""
            found.pop(name, None)
            found[name] = value
    return found


def _capabilities(security: Object, at: str) -> tuple[str, ...]:
    added = object_at(security, "capabilities", at).get("add")
    if added is None:
        return ()
    place = f"{at}.capabilities.add"
    if not isinstance(added, list) or not all(isinstance(name, str) for name in added):
        raise DecodeError(place, "expected a list of texts")
    return tuple(name.upper().removeprefix("CAP_") for name in added)
