"""``nodetopo explain-claim``: why a ResourceClaim got its devices, and better alternatives."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from nodetopo.cli import output
from nodetopo.cli.cluster_source import server
from nodetopo.cli.dra_source import CLAIMS, Published, published_in, read_objects
from nodetopo.cli.files import STDIO
from nodetopo.cli.output import Answer, emit
from nodetopo.cli.source import load, settings
from nodetopo.errors import ApiUnavailable, DecodeError, InputError
from nodetopo.formats.fields import Object, full_name
from nodetopo.machines import bundled
from nodetopo.model.dra import DRIVER, NVIDIA_DRIVER, SLICES, PublishedDevice
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.claims.claim import Explained, Given, Pools, Set, Verdict, node_of
from nodetopo.tools.cluster.claims.explain import explained
from nodetopo.tools.cluster.export.offered import NIC_DRIVER, numa_nodes_of
from nodetopo.tools.cluster.export.shapes import machine_of, with_links
from nodetopo.tools.cluster.node import cluster_node
from nodetopo.topology.matrix import word
from nodetopo.topology.published import pci_of

SCHEMA = "nodetopo/explain-claim/v1"
"""Names the JSON shape, described by ``docs/reference/schema/explain-claim.json``."""

Rows: TypeAlias = list[tuple[str, ...]]

_CLAIM, _SLICE = "ResourceClaim", "ResourceSlice"


class _Input(Struct, frozen=True, kw_only=True):
    """The known state of the cluster; *others* can hold the claim itself, ``None`` is unknown."""

    claim: Object
    published: Published
    others: Sequence[Object] | None


def run(args: Namespace) -> int:
    """Print why; 0 no better set was free, 1 one was or nothing is allocated, 3 unknown.

    Raises:
        InputError: the claim does not exist, or a file cannot be used.
        ApiUnavailable: the API server cannot be asked.
    """
    claims_input = _input(args)
    by_node = claims_input.published.by_node
    node = node_of(claims_input.claim, by_node)
    machine, source = _machine(args, node, by_node)
    pools = Pools(known=claims_input.published.pools, unplaced=claims_input.published.unplaced)
    result = explained(claims_input.claim, by_node, claims_input.others, machine, pools=pools)
    emit(_answer(result, machine or Snapshot(), source), args)
    codes = {Verdict.WORSE: 1, Verdict.WAITING: 1, Verdict.UNKNOWN: 3}
    return codes.get(result.verdict, 0)


def _input(args: Namespace) -> _Input:
    files = (args.claim, args.slices, args.claims, args.snapshot)
    if sum(name == STDIO for name in files) > 1:
        raise InputError("standard input can be read only once", "name files for the others")
    if args.cluster is not None and any(files[:3]):
        raise InputError("--cluster has its own claims and slices", "leave the files out")
    if args.name is None and args.claim is None and args.claims is None:
        raise InputError("no claim is named", "name it as NAMESPACE/NAME, or with --claim FILE")
    if args.slices is None and (args.claim or args.claims):
        raise InputError("a claim alone does not say what was free", "add --slices FILE")
    others: Sequence[Object] | None
    if args.slices is None:
        slices = server(args).listed(SLICES)
        others = server(args).listed(CLAIMS)
    else:
        slices = read_objects(args.slices, _SLICE)
        others = None if args.claims is None else read_objects(args.claims, _CLAIM)
    given = others or () if args.claim is None else read_objects(args.claim, _CLAIM)
    return _Input(claim=_named(args, given), published=_published(args, slices), others=others)


def _published(args: Namespace, slices: Sequence[Object]) -> Published:
    """Return what *slices* publish; Nodes are only asked for where some select nodes by labels."""
    published = published_in(slices, None)
    if not published.unplaced or args.slices is not None:
        return published

    try:
        nodes = [
            cluster_node(item.get("metadata")) for item in server(args).listed("/api/v1/nodes")
        ]
    except (ApiUnavailable, DecodeError):  # then the pools are named, and their nodes are not
        return published
    return published_in(slices, nodes)


def _named(args: Namespace, claims: Sequence[Object]) -> Object:
    where = args.claim or args.claims or f"the cluster {args.cluster or ''}".strip()
    if args.name is None:
        if len(claims) != 1:
            raise InputError(f"{where} has {len(claims)} claims", "name one as NAMESPACE/NAME")
        return claims[0]
    wanted = args.name if "/" in args.name else f"default/{args.name}"
    claim_body = next((claim for claim in claims if full_name(claim) in {wanted, args.name}), None)
    if claim_body is None:
        cure = "see `kubectl get resourceclaims -A`; a pod's are named after the pod"
        if args.cluster is not None:
            cure = f"its claims are: {', '.join(map(full_name, claims))}"
        raise InputError(f"no ResourceClaim {wanted} in {where}", cure)
    return claim_body


def _machine(
    args: Namespace, node: str | None, published: Mapping[str, Sequence[PublishedDevice]]
) -> tuple[Snapshot | None, str]:
    """Return the machine of the claim's node, and where it is from."""
    if args.snapshot is not None:
        return load(args), args.snapshot
    if args.machine is not None:
        return load(args), f"the machine {args.machine}"
    if node is None:
        return None, "nothing"
    if args.slices is None and args.cluster is None and settings(args).node_name == node:
        here = load(args, needs_gpus=False, needs_hardware=False)
        if here.gpus:
            return here, "this node"

    devices = published.get(node, ())
    is_ours = not any(device.driver == NVIDIA_DRIVER for device in devices)
    machine = machine_of(devices, DRIVER if is_ours else NVIDIA_DRIVER, NIC_DRIVER)
    known = with_links(machine, map(bundled.machine, bundled.names()))
    if known is not None:
        return known, "its slices, and a bundled machine with the same GPUs"
    return machine, "its slices alone: NVLinks are not known"


def _answer(found: Explained, machine: Snapshot, source: str) -> Answer:
    head = f"{found.claim}   {_said(found)}\n"
    table = head
    if found.node is not None:
        table += f"  on {found.node}, known from {source}\n"
    if found.given:
        devices: Rows = [("REQUEST", "DEVICE", "GPU", "PCI", "NUMA NODE", "NEAREST")]
        devices += [_row(each, found, machine) for each in found.given]
        table += f"\n{output.table(devices, indent=2)}"
    if found.was is not None and found.best is not None:
        sets: Rows = [("", "GPUs", "GB/s", "NUMA NODES", "SOCKETS", "WORTH LEFT")]
        sets.append(("given", *_figures(found.was, machine)))
        if found.best.gpus != found.was.gpus:
            sets.append(("best", *_figures(found.best, machine)))
        free = " ".join(machine.gpus[at].name for at in found.free)
        table += f"\n{output.table(sets, indent=2)}free  {free}\n"
    if found.lacks:
        lacks: Rows = [
            ("REQUEST", "NODE", "WANTED", "FREE", "IN USE", "TAINTED", "EQUAL", "HELD BY")
        ]
        for lack in found.lacks:
            wanted = "all" if lack.wanted is None else str(lack.wanted)
            counts = (str(lack.free), str(lack.in_use), str(lack.tainted))
            equal = ", ".join(
                f"{count} in {name.rpartition('/')[2]}" for name, count in lack.largest.items()
            )
            holders = ", ".join(lack.holders)
            lacks.append((lack.request, lack.node, wanted, *counts, equal or "-", holders or "-"))
        table += f"\n{output.table(lacks, indent=2)}"
    for title, lines in (("why", found.why), ("change", found.cures), ("unknown", found.unknown)):
        if lines:
            table += f"{title}\n" + "".join(f"  {output.clean(line)}\n" for line in lines)
    return Answer(plain=_plain(found, machine, source), table=table, short=head)


def _said(found: Explained) -> str:
    return {
        Verdict.BEST: "no better set of GPUs was free",
        Verdict.WORSE: "a better set of GPUs was free",
        Verdict.NO_CHOICE: "there was nothing to choose",
        Verdict.UNKNOWN: "not known",
        Verdict.WAITING: "waits: nothing is allocated",
    }[found.verdict]


def _row(each: Given, found: Explained, machine: Snapshot) -> tuple[str, ...]:
    gpus = [machine.gpus[at] for at in each.gpus]
    device = each.published
    numa = {gpu.numa_node for gpu in gpus if gpu.numa_node is not None}
    if not gpus and device is not None:
        numa = {*numa_nodes_of(device)}
    address = device and pci_of(device)
    pci = " ".join(str(gpu.pci or "?") for gpu in gpus) or str(address or "-")
    nearest = "-"
    for hca, gpu, distance in found.nearest:
        if hca == each.hca and gpu is not None and distance is not None:
            nearest = f"{machine.gpus[gpu].name} {word(distance)}"
    return (
        each.request,
        each.key[2],
        " ".join(gpu.name for gpu in gpus) or "-",
        pci,
        " ".join(map(str, sorted(numa))) or "?",
        nearest,
    )


def _figures(found: Set, machine: Snapshot) -> tuple[str, ...]:
    score = found.score
    return (
        " ".join(machine.gpus[at].name for at in found.gpus),
        "-" if score.bandwidth_gb_s is None else f"{score.bandwidth_gb_s:g}",
        str(score.numa_nodes),
        str(score.sockets),
        f"{score.remainder_value:g}",
    )


def _plain(found: Explained, machine: Snapshot, source: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "claim": found.claim,
        "verdict": found.verdict.value,
        "node": found.node,
        "source": source,
        "requests": [
            {
                "name": request.name,
                "classes": list(request.device_classes),
                "count": request.count,
                "alternatives": list(request.alternatives),
                "matched": request.matched,
            }
            for request in found.requests
        ],
        "devices": [
            {
                "request": each.request,
                "driver": each.key[0],
                "pool": each.key[1],
                "device": each.key[2],
                "gpus": [machine.gpus[at].index for at in each.gpus],
                "hca": None if each.hca is None else (machine.hcas or ())[each.hca].name,
            }
            for each in found.given
        ],
        "free": [machine.gpus[at].index for at in found.free],
        "given": _plain_set(found.was, machine),
        "best": _plain_set(found.best, machine),
        "hcas": [
            {
                "hca": (machine.hcas or ())[hca].name,
                "gpu": None if gpu is None else machine.gpus[gpu].index,
                "distance": None if distance is None else word(distance),
            }
            for hca, gpu, distance in found.nearest
        ],
        "lacks": [
            {
                "request": lack.request,
                "node": lack.node,
                "wanted": lack.wanted,
                "free": lack.free,
                "in_use": lack.in_use,
                "tainted": lack.tainted,
                "largest": dict(lack.largest),
                "held_by": list(lack.holders),
            }
            for lack in found.lacks
        ],
        "why": list(found.why),
        "change": list(found.cures),
        "unknown": list(found.unknown),
    }


def _plain_set(found: Set | None, machine: Snapshot) -> dict[str, Any] | None:
    if found is None:
        return None
    indices = [machine.gpus[at].index for at in found.gpus]
    return {"gpus": indices, "score": found.score.to_plain()}
