"""Names of the Container Device Interface (CNCF CDI, SPEC.md, version 1.1.0)."""

import re
from collections.abc import Sequence
from hashlib import blake2s

from nodetopo.errors import InputError
from nodetopo.formats import cdi

KIND = "nvidia.com/gpu"
"""The kind of NVIDIA's GPUs in specifications of ``nvidia-ctk cdi generate``, by default."""

OWN_KIND = "device-plugin.nodetopo.io/gpu"
"""The kind of GPUs in our specifications.

It is not NVIDIA's: when two specifications in directories of equal priority define the same device,
runtimes refuse that device altogether (CDI v1.1.0, pkg/cdi/cache.go). The toolkit writes
``nvidia.com`` into the same directory at boot."""

OTHERS_VENDORS = ("nvidia.com", "k8s.device-plugin.nvidia.com")
"""Vendors in the specifications of NVIDIA's toolkit and NVIDIA's device plugin."""

ANNOTATION_PREFIX = "cdi.k8s.io/"
"""The prefix that container runtimes look for (CDI v1.1.0, pkg/cdi/annotations.go)."""

ALL = "all"
"""The device that is everything of its kind at once."""

_PLUGIN = "nvidia-device-plugin"
"""The plugin's part of the key, as in NVIDIA's (k8s-device-plugin v0.19.0,
internal/plugin/server.go), for programs that match it."""

_DIGEST_BYTES = 16
"""Of the key's last part: as long as the UUID in NVIDIA's key."""

_LONGEST_VENDOR = 253
_LONGEST_CLASS = 63
"""Characters; SPEC.md, "Kind"."""

_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_NAME = re.compile(r"[a-z0-9](?:[\w.-]*[a-z0-9])?", re.ASCII)
"""The halves of an annotation's key in lower case (k8s.io/apimachinery
pkg/api/validation/objectmeta.go)."""

_LONGEST_DOMAIN = 253
_LONGEST_NAME = 63


def sibling_kind(kind: str, name: str) -> str:
    """Return the kind of class *name* with the vendor of *kind*."""
    return f"{kind.partition('/')[0]}/{name}"


def checked_kind(kind: str) -> str:
    """Return *kind* if it is a valid ``vendor/class``."""
    match = cdi.KIND.fullmatch(kind)
    if (
        match is None
        or len(match["vendor"]) > _LONGEST_VENDOR
        or len(match["class"]) > _LONGEST_CLASS
    ):
        raise InputError(f"not a CDI kind: {kind!r}", f"write vendor/class, such as {KIND}")
    return kind


def written_kind(kind: str) -> str:
    """Return the kind of GPUs in our specifications for the configured *kind*.

    :data:`KIND`, the default of the setting, becomes :data:`OWN_KIND`.

    Raises:
        InputError: it is invalid, or another kind written by NVIDIA's programs.
    """
    chosen = OWN_KIND if kind == KIND else checked_kind(kind)
    if chosen.partition("/")[0] in OTHERS_VENDORS:
        raise InputError(
            f"the CDI kind {chosen} is for NVIDIA's own specifications: a device that two of them "
            "name can be given to no container",
            f"leave it out for {OWN_KIND}, or name another vendor",
        )
    return chosen


def is_device(name: str) -> bool:
    """Return whether *name* is a valid name of a device."""
    return cdi.DEVICE.fullmatch(name) is not None


def annotation_key(prefix: str, names: Sequence[str]) -> str:
    """Return the key that requests the devices *names*: the same for the same devices.

    Other devices have another key, because the kubelet merges the annotations of all resources
    of a container.
    """
    digest = blake2s(",".join(names).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{prefix}{_PLUGIN}_{digest}"


def checked_annotation_prefix(prefix: str) -> str:
    """Return *prefix* if keys that begin with it are valid keys of annotations."""
    domain, slash, name = annotation_key(prefix, ()).lower().rpartition("/")
    is_domain = _DOMAIN.fullmatch(domain) is not None and len(domain) <= _LONGEST_DOMAIN
    is_name = _NAME.fullmatch(name) is not None and len(name) <= _LONGEST_NAME
    if not is_name or (slash and not is_domain):
        raise InputError(
            f"no annotation can begin with {prefix!r}",
            f"write a domain and a slash, such as {ANNOTATION_PREFIX}",
        )
    return prefix
