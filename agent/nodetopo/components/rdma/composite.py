"""GPUs paired with an HCA and offered as one device, for pods that need the pair.

A running pod has the HCA of its pair, so that a pair outlives the process: an HCA that appeared
late would otherwise be paired with another GPU by the next one.

Two resources are two choices, and the second can only follow the first. A paired device needs no
second choice. In return, its GPU and its HCA are in no other resource: the kubelet would not know
that they are in use.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.rdma.answers import add_variables
from nodetopo.components.rdma.joint import JointPlacement
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.resources import Offer, Refusal, Resource
from nodetopo.deviceplugin.service import Answers
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.deviceplugin.state_file import StateFile, boot_file
from nodetopo.model.nvlink import Closeness
from nodetopo.rdma.identity import KnownHca
from nodetopo.rdma.pairing import Pairing
from nodetopo.rdma.pools import Pool, SharingMode
from nodetopo.rdma.selection import select

PAIRS_SCHEMA = "nodetopo-pairs/v1"

PAIRS_FILE = "pairs.json"
"""Beside the health file."""

FARTHEST = Closeness.NODE
"""Beyond it the two are on different sockets, and no pair."""


class Pairs(Struct, frozen=True, kw_only=True):
    """Which HCA each GPU is offered with, by id and key; once paired, for good."""

    hcas: Mapping[str, str]
    refusals: tuple[Refusal, ...] = ()


class SavedPairs(Struct, frozen=True, kw_only=True):
    """The content of the file of pairs: the key of an HCA by the id of its GPU."""

    hcas: Mapping[str, str]


def pairs_file(path: Path, boot_id: str) -> StateFile[SavedPairs]:
    """Return the file *path* of the pairs of one boot."""
    return boot_file(
        path,
        SavedPairs,
        what="pairs of GPUs and HCAs",
        schema=PAIRS_SCHEMA,
        boot_id=boot_id,
        loss="new pairs can have HCAs that running pods have from earlier ones: drain the node",
    )


def joined(late: Mapping[str, str], offered: Mapping[str, str]) -> Mapping[str, str]:
    """Return the pairs of a file that was read *late*, with those *offered* meanwhile.

    A GPU keeps the HCA that it is offered with, unless the file has it in the pair of a GPU that
    was not offered: a running pod might have that.
    """
    first = {gpu: key for gpu, key in late.items() if gpu not in offered}
    taken = set(first.values())
    return {**first, **{gpu: key for gpu, key in offered.items() if key not in taken}}


def paired(
    pairing: Pairing,
    known: Sequence[KnownHca],
    gpus: Sequence[str],
    before: Mapping[str, str],
    resource: str,
) -> Pairs:
    """Return a separate HCA for each of *gpus* that can have one.

    Args:
        pairing: of a snapshot with the HCAs of *known*, in the same order.
        gpus: ids of the GPUs that are offered whole.
        before: existing pairs; they stay even if a part is lost, or not there yet.
    """
    snapshot, keys = pairing.snapshot, [hca.key for hca in known]
    pool = Pool(resource=resource, most=len(keys), mode=SharingMode.EXCLUSIVE)
    selection = select(snapshot, [pool])
    at = {gpu.id: position for position, gpu in enumerate(snapshot.gpus)}
    kept = {gpu: key for gpu, key in before.items() if gpu in at}
    free_gpus = [at[gpu] for gpu in gpus if gpu in at and gpu not in kept]
    free_hcas = [
        position for position in selection.hcas[resource] if keys[position] not in before.values()
    ]
    chosen = pairing.gpus_for(free_hcas, free_gpus, min(len(free_hcas), len(free_gpus)))
    near = {
        snapshot.gpus[pair.gpu].id: keys[pair.hca]
        for pair in pairing.matched(chosen, free_hcas)
        if pair.closeness is not None and pair.closeness <= FARTHEST
    }
    pairs = {**kept, **near}
    alone = [snapshot.gpus[at[gpu]].name for gpu in gpus if gpu in at and gpu not in pairs]
    reasons = [
        Refusal(resource=None, reason=f"{exclusion.hca}: {exclusion.reason}")
        for exclusion in selection.exclusions
    ]
    if alone:
        reason = f"no HCA of its own on its socket for {', '.join(alone)}: offered alone"
        reasons.append(Refusal(resource=None, reason=reason))
    return Pairs(hcas=MappingProxyType(pairs), refusals=tuple(reasons))


def with_pairs(offered: Offer, name: str, pairs: Pairs, healthy: Callable[[str], bool]) -> Offer:
    """Return *offered* with the GPUs of *pairs* as devices of the resource *name*, not alone.

    A pair is healthy if both are; *healthy* is asked with the key of an HCA.
    """
    resources = []
    for resource in offered.resources:
        if not resource.is_whole:
            resources.append(resource)
            continue
        own = [device for device in resource.devices if device.id in pairs.hcas]
        left = [device for device in resource.devices if device.id not in pairs.hcas]
        if left:
            resources.append(_part(resource, resource.name, left))
        if own:
            devices = [
                replace(device, is_healthy=device.is_healthy and healthy(pairs.hcas[device.id]))
                for device in own
            ]
            resources.append(_part(resource, name, devices))
    return replace(
        offered, resources=tuple(resources), refusals=(*offered.refusals, *pairs.refusals)
    )


class PairAnswers:
    """Answers that have both: what *gpus* answers, and what *hcas* answers to the HCAs' keys."""

    def __init__(
        self,
        gpus: Answers,
        hcas: Callable[[Sequence[str]], pb.ContainerAllocateResponse],
        pairs: Callable[[], Mapping[str, str]],
        joint: JointPlacement,
    ) -> None:
        self._gpus = gpus
        self._hcas = hcas
        self._pairs = pairs
        self._joint = joint

    @property
    def numa(self) -> NumaReport:
        return self._gpus.numa

    def look(self) -> None:
        self._gpus.look()

    def answer(self, devices: Sequence[PluginDevice]) -> pb.ContainerAllocateResponse:
        response, pairs = self._gpus.answer(devices), self._pairs()
        gpus = [device.id for device in devices]
        hcas = [pairs[gpu] for gpu in gpus]
        response.MergeFrom(self._hcas(hcas))
        add_variables(response, self._joint, gpus, hcas, are_gpus_certain=True)
        return response


def _part(resource: Resource, name: str, devices: Sequence[PluginDevice]) -> Resource:
    return Resource(
        name=name,
        unshared_name=name,
        devices=tuple(devices),
        gpus=MappingProxyType({device.id: resource.gpus[device.id] for device in devices}),
    )
