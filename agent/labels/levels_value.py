"""Names of places in a cluster as label values that no scheduler can mistake for another's.

KAI joins the values of all levels with dots, so that ``r.1`` below ``a`` and ``1`` below ``a.r``
are one place to it; kube-scheduler, LWS, JobSet and Volcano take a value for the same place
wherever they meet it, so that rack ``1`` of two blocks is one rack.
"""

import re
from collections.abc import Sequence

_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
"""FNV-1a of 64 bits (draft-eastlake-fnv, section 5)."""

_PLAIN = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_]{0,61}[A-Za-z0-9])?")
"""A label value (k8s.io/apimachinery validation) without dots."""

_JOINT = "__"


def level_value(raw: str) -> str | None:
    """Return *raw* as the value of a level: as it is, or its digest if that cannot be.

    The digest is the one that Topograph writes for names over 63 characters, so that values
    stay comparable with its own; here it also stands for names with dots and with characters
    that a label cannot hold. ``None`` for an empty name.
    """
    if not raw:
        return None
    return raw if _PLAIN.fullmatch(raw) else digest(raw)


def qualified(names: Sequence[str]) -> str:
    """Return the value of the last of *names*, told apart by its parents, broadest first.

    Readable where every name is plain and holds no joint, so that no two places share a value.
    """
    joined = _JOINT.join(names)
    is_clear = all(_PLAIN.fullmatch(name) and _JOINT not in name for name in names)
    if is_clear and _PLAIN.fullmatch(joined):
        return joined
    # With their lengths, so that no character of a name can pass for the end of one.
    told = names[0] if len(names) == 1 else "".join(f"{len(name)}:{name}" for name in names)
    return digest(told)


def digest(name: str) -> str:
    """Return ``x`` and the FNV-1a of *name* in hex, as Topograph does: without leading zeros."""
    found = _FNV_OFFSET
    for byte in name.encode(errors="surrogatepass"):  # half a character is a name, too
        found = (found ^ byte) * _FNV_PRIME % (1 << 64)
    return f"x{found:x}"
