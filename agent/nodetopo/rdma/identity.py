"""Keys of HCAs that outlive their names, and what is remembered of HCAs that are gone.

The name of an RDMA device is no identity: udev renames it after boot (rdma-core,
kernel-boot/rdma_rename.c), bonding registers another one for the same function, and a driver
that is loaded again can count in another order. The function it is on does not change.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.limits import MAX_HCAS
from nodetopo.model.snapshot import Snapshot

MAX_KEY = 56
"""Characters of a key: with the suffix of a token, ``::`` and up to five digits, 63."""

_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]")
"""The kernel takes almost any name (drivers/infiniband/core/nldev.c, nldev_set_doit)."""

_DIGEST = 8
"""Hex digits that stand for what a shortened name has lost."""

_MAIN = (HcaKind.PHYSICAL, HcaKind.BOND)
"""Of several RDMA devices on one function, the one that has its key without a name."""


class KnownHca(Struct, frozen=True, kw_only=True):
    """An HCA that a snapshot has shown since the process began."""

    key: str  # names it in device ids and verdicts; never changes, and no other HCA gets it
    hca: Hca  # facts that the last snapshot lacks are as last known
    is_lost: bool = False  # the last snapshot does not list it


def hca_key(hca: Hca) -> str:
    """Return the key of *hca* where it is the only RDMA device of its function, as a rule.

    It is the PCI address, ``0000:17:00.0``; of a subfunction ``0000:17:00.0/sf88``; of a device
    without a PCI function its name. Where several devices share a function, and where an HCA can
    have been renamed, :func:`remembered_hcas` has the keys.
    """
    return _place(hca) or _plain(hca.name, MAX_KEY)


def hca_keys(hcas: Iterable[Hca]) -> Mapping[str, str]:
    """Return name → key of HCAs about which nothing is remembered; all keys are different.

    Of several on one function the physical one, or the first by name, has the key of the
    function, and the others have their names behind it: ``0000:17:00.0/rep_1``.
    """
    return _new_keys(hcas, frozenset())


def remembered_hcas(previous: Sequence[KnownHca], snapshot: Snapshot) -> tuple[KnownHca, ...]:
    """Return *previous* updated from *snapshot*, in its order, followed by new HCAs.

    An HCA that is gone stays, as lost, so that the kubelet keeps counting its devices and the
    accounting of its pods holds; one that comes back, or has another name now, keeps its key. A
    snapshot whose HCAs could not be listed proves nothing, and leaves *previous* unchanged.
    Facts that are unknown now stay as last known. An HCA that turns out to belong to the NVLink
    fabric is forgotten. Beyond :data:`nodetopo.model.limits.MAX_HCAS` lost ones are, oldest first:
    subfunctions can come and go without end.
    """
    if snapshot.hcas is None:
        return tuple(previous)
    management = {hca_key(hca) for hca in snapshot.management_hcas or ()}
    before = [known for known in previous if hca_key(known.hca) not in management]
    nodes = [node.id for node in snapshot.numa_nodes or ()]
    now = [_with_valid_node(hca, nodes) for hca in snapshot.hcas]
    names = _current_names(before, now)
    by_name = {hca.name: hca for hca in now}
    kept = []
    for known in before:
        name = names.get(known.key)
        if name is None:
            kept.append(replace(known, is_lost=True))
        else:
            updated = _updated(known.hca, by_name.pop(name))
            kept.append(KnownHca(key=known.key, hca=updated))
    keys = _new_keys(by_name.values(), {known.key for known in before})
    new = [KnownHca(key=keys[name], hca=hca) for name, hca in by_name.items()]
    surplus = max(0, len(kept) + len(new) - MAX_HCAS)
    forgotten = {known.key for known in [it for it in kept if it.is_lost][:surplus]}
    return (*(known for known in kept if known.key not in forgotten), *new)


def _current_names(before: Sequence[KnownHca], now: Sequence[Hca]) -> Mapping[str, str]:
    """Return key → name now, of the HCAs of *before* that are still there.

    On one function the one with the same name and no other GUID is the same, then the one with
    the same GUID, then one with the same name; of what is left a single one that went and a
    single one that came are one that was renamed. Without a PCI function a device is recognized
    by name or GUID alone.
    """
    names: dict[str, str] = {}
    for place in dict.fromkeys(_place(known.hca) for known in before):
        gone = [known for known in before if _place(known.hca) == place]
        come = [hca for hca in now if _place(hca) == place]
        for is_same in (_is_unchanged, _has_guid_of, _has_name_of):
            for known in list(gone):
                found = next((hca for hca in come if is_same(known.hca, hca)), None)
                if found is not None:
                    names[known.key] = found.name
                    gone.remove(known)
                    come.remove(found)
        if place is not None and len(gone) == len(come) == 1:
            names[gone[0].key] = come[0].name
    return names


def _is_unchanged(before: Hca, now: Hca) -> bool:
    guids = {before.node_guid, now.node_guid} - {None}
    return before.name == now.name and len(guids) <= 1  # equal, or one is unknown


def _has_guid_of(before: Hca, now: Hca) -> bool:
    return before.node_guid is not None and before.node_guid == now.node_guid


def _has_name_of(before: Hca, now: Hca) -> bool:
    return before.name == now.name


def _updated(before: Hca, now: Hca) -> Hca:
    """Return *now* with what only *before* has; interfaces and devices really come and go."""
    return replace(
        now,
        kind=now.kind or before.kind,
        path=now.path or before.path,
        function=now.function or before.function,
        numa_node=before.numa_node if now.numa_node is None else now.numa_node,
        parent=now.parent or before.parent,
        hca_type=now.hca_type or before.hca_type,
        board_id=now.board_id or before.board_id,
        firmware=now.firmware or before.firmware,
        node_guid=now.node_guid or before.node_guid,
        sys_image_guid=now.sys_image_guid or before.sys_image_guid,
        ports=now.ports or before.ports,
    )


def _with_valid_node(hca: Hca, nodes: Sequence[int]) -> Hca:
    """Return *hca* without a NUMA node that the kernel does not list: the kubelet would drop it."""
    node = hca.numa_node
    is_known = node is not None and node >= 0 and (not nodes or node in nodes)
    return hca if is_known else replace(hca, numa_node=None)


def _new_keys(hcas: Iterable[Hca], taken: Iterable[str]) -> dict[str, str]:
    used = set(taken)
    keys = {}
    for hca in sorted(hcas, key=lambda it: (it.kind not in _MAIN, it.name)):
        key, number = hca_key(hca), 1
        place = f"{key}/" if _place(hca) else ""
        if key in used:
            key = f"{place}{_plain(hca.name, MAX_KEY - len(place))}"
        while key in used:  # another HCA had this name when it was given its key
            number += 1
            key = f"{place}{_plain(f'{hca.name}-{number}', MAX_KEY - len(place))}"
        keys[hca.name] = key
        used.add(key)
    return keys


def _place(hca: Hca) -> str | None:
    """Return the function, or the subfunction, that *hca* is on."""
    if hca.pci is None:
        return None
    return str(hca.pci) if hca.subfunction is None else f"{hca.pci}/sf{hca.subfunction}"


def _plain(name: str, most: int) -> str:
    """Return *name* as it is, or, where it is long or has unusual characters, made fit."""
    plain = _UNUSUAL.sub("_", name)
    if plain == name and len(plain) <= most:
        return plain
    digest = sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST]
    return f"{plain[: most - _DIGEST - 1]}-{digest}"
