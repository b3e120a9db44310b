"""``nodetopo allocate``: which GPUs a request gets, and why."""

from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from nodetopo.allocation.allocator import Allocation, Allocator, Alternative
from nodetopo.allocation.best_effort import BestEffort, PeerPanics
from nodetopo.allocation.explain import compared, listed, names
from nodetopo.allocation.measured import coverage
from nodetopo.allocation.requests import resolve, usable
from nodetopo.allocation.rules import Model, Policy, Rules, terms_for
from nodetopo.cli import output
from nodetopo.cli.bandwidth_table import read_table
from nodetopo.cli.files import STDIO
from nodetopo.cli.flags.allocate import NVIDIA
from nodetopo.cli.lists import device_names
from nodetopo.cli.output import Answer, emit, note
from nodetopo.cli.source import files_of, load
from nodetopo.components.gpus.health.ledger import degraded_at_a_look
from nodetopo.errors import InputError, UnreadableError
from nodetopo.model.snapshot import Snapshot

SCHEMA = "nodetopo/allocate/v1"
"""Names the JSON shape, described by ``docs/reference/schema/allocate.json``."""

COMPARISON_SCHEMA = "nodetopo/allocate-nvidia/v1"
"""Names the JSON shape, described by ``docs/reference/schema/allocate-nvidia.json``."""

MOST_REPLICAS = 128
"""More than a GPU is shared by; NVIDIA's plugin sets no limit."""


def run(args: Namespace) -> int:
    """Print the best set, or compare NVIDIA's with it; 0.

    Raises:
        InputError: a GPU is unknown, no set fits, or flags contradict each other.
        UnreadableError: the source names no GPU, and may omit them.
    """
    if args.bandwidth_table == STDIO and STDIO in files_of(args):
        raise InputError("standard input can be read only once", "name one of the two files")
    snapshot = load(args)
    if not snapshot.gpus and (reason := unknown_gpus(snapshot)) is not None:
        cure = "name a source that lists the GPUs, such as `nvidia-smi topo -m` with --topo-m"
        raise UnreadableError(f"could not tell which GPUs there are: {reason}", cure)
    is_comparison = args.policy == NVIDIA
    if is_comparison:
        ours_only = {"--replicas": args.replicas, "--mig": args.mig, "--why-not": args.why_not}
        if flag := next((flag for flag, value in ours_only.items() if value), None):
            raise InputError(
                f"--policy nvidia does not go with {flag}", "leave it out, or take a policy of ours"
            )
    request = _request(snapshot, args, Policy.BEST if is_comparison else Policy(args.policy))
    best = request.allocator.allocate(
        available=request.available,
        required=request.required,
        size=request.size,
        degraded=request.degraded,
    )
    emit((_comparison if is_comparison else _allocation)(request, best, args), args)
    return 0


def unknown_gpus(snapshot: Snapshot) -> str | None:
    """Return why *snapshot* could lack the node's GPUs; ``None`` if the node has none.

    NVML did not answer, or the file was written without them.
    """
    return next((issue.reason for issue in snapshot.issues if issue.hides_gpus), None)


class DeviceAllocator(Protocol):
    """The interface of :class:`Allocator` and its counterpart for shared GPUs."""

    def allocate(
        self,
        *,
        available: Collection[str],
        required: Collection[str] = (),
        size: int,
        degraded: Collection[str] = (),
    ) -> Allocation:
        """Return the best set."""

    def describe(
        self,
        chosen: Collection[str],
        available: Collection[str] | None = None,
        degraded: Collection[str] = (),
    ) -> Allocation:
        """Return the assessment of a set."""


class Request(Struct, frozen=True, kw_only=True):
    """A request of the command line, in device ids."""

    snapshot: Snapshot
    allocator: DeviceAllocator
    devices: Mapping[str, str]  # the GPU id by device id, in device order; equal for whole GPUs
    # available, required, degraded: device ids; *available* in the order given.
    available: tuple[str, ...]
    required: tuple[str, ...]
    degraded: tuple[str, ...]
    size: int
    terms: tuple[str, ...]  # the fields of a score in the order in which they are compared

    @property
    def is_shared(self) -> bool:
        """Return whether the devices are MIG instances or replicas."""
        return any(device != gpu for device, gpu in self.devices.items())

    def name(self, device: str) -> str:
        """Return the display name of *device*: ``GPU5`` for a whole GPU, its id for a part."""
        names = {} if self.is_shared else {gpu.id: gpu.name for gpu in self.snapshot.gpus}
        return names.get(device, device)

    def names(self, chosen: tuple[str, ...]) -> str:
        """Return the GPUs of a set, with how many of their parts it has where they are shared."""
        by_id = {gpu.id: gpu.name for gpu in self.snapshot.gpus}
        counts = Counter(by_id[self.devices.get(device, device)] for device in chosen)
        if not self.is_shared:
            return " ".join(counts)
        return ", ".join(f"{count} of {name}" for name, count in counts.items())

    def ids(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """Return the ids of the devices in *arguments* (:func:`device_ids`)."""
        return device_ids(self.snapshot, self.devices, arguments)


def device_ids(
    snapshot: Snapshot, devices: Mapping[str, str], arguments: Sequence[str]
) -> tuple[str, ...]:
    """Return the ids that *arguments* name, by comma: of devices, or of GPUs for all of theirs.

    Ranges of GPUs are written out (:func:`nodetopo.cli.lists.device_names`).

    Raises:
        InputError: there is none of that name.
    """
    ids: list[str] = []
    for text in device_names(arguments):
        if text in devices:
            ids.append(text)
            continue
        name, separator, number = text.partition("::")
        gpu = resolve(snapshot, name).id
        if not separator:
            # Without any, it is a GPU that is lost, or has none of these devices.
            ids += [device for device, parent in devices.items() if parent == gpu] or [gpu]
        elif f"{gpu}::{number}" in devices:
            ids.append(f"{gpu}::{number}")
        else:
            raise InputError(f"unknown device {text!r}", "replicas are GPU0::0, GPU0::1, and so on")
    return tuple(dict.fromkeys(ids))


def _request(snapshot: Snapshot, args: Namespace, policy: Policy) -> Request:
    """Return the request that *args* hold."""
    rules = _rules(snapshot, args, policy)
    devices = _devices(snapshot, args)
    allocator: DeviceAllocator
    if args.replicas is not None or args.mig is not None:
        from nodetopo.cli.allocate_shared import shared_allocator  # noqa: PLC0415 - whole GPUs do without

        is_mig = args.replicas is None
        allocator, terms = shared_allocator(snapshot, devices, rules, is_mig=is_mig)
    else:
        allocator, terms = Allocator(snapshot, rules), terms_for(policy, args.size)
    available = device_ids(snapshot, devices, args.available)
    if not args.available:
        available = _offered(snapshot, devices, is_mig=args.mig is not None)
    return Request(
        snapshot=snapshot,
        allocator=allocator,
        devices=devices,
        available=available,
        required=device_ids(snapshot, devices, args.required),
        degraded=device_ids(snapshot, devices, args.degraded)
        if args.degraded
        else tuple(
            device for device, gpu in devices.items() if gpu in degraded_at_a_look(snapshot)
        ),
        size=args.size,
        terms=terms,
    )


def _offered(snapshot: Snapshot, devices: Mapping[str, str], *, is_mig: bool) -> tuple[str, ...]:
    """Return the *devices* that the daemon offers; a note tells which GPUs are left out.

    No GPU in MIG mode is offered whole: only its instances are.
    """
    apart = () if is_mig else tuple(gpu for gpu in snapshot.gpus if gpu.is_divided)
    divided = {gpu.id for gpu in apart}
    if left_out := [gpu.name for gpu in apart if gpu.id in devices.values()]:
        verb = "is" if len(left_out) == 1 else "are"
        cure = "--mig PROFILE chooses among instances, and --available takes such GPUs whole"
        note("note", f"{listed(left_out)} {verb} in MIG mode and left out; {cure}")
    return tuple(device for device, gpu in devices.items() if gpu not in divided)


def _rules(snapshot: Snapshot, args: Namespace, policy: Policy) -> Rules:
    """Return the rules of *args*; a note tells how much of the node a bandwidth table covers."""
    model, name = Model(args.bandwidth_model), args.bandwidth_table
    if name is None:
        if model is Model.TABLE:
            raise InputError(
                "the model `table` needs measured bandwidths", "add --bandwidth-table FILE"
            )
        return Rules(policy=policy, model=model)
    measured = read_table(name, snapshot).on(snapshot)
    note("note", f"{name}: {coverage(measured, len(snapshot.gpus))}")
    return Rules(policy=policy, model=model, measured=measured)


def _devices(snapshot: Snapshot, args: Namespace) -> Mapping[str, str]:
    """Return the GPU id by device id: whole GPUs, replicas, or the MIG instances of a profile."""
    if args.mig is None:
        gpus = usable(snapshot)
        if args.replicas is None:
            return {gpu: gpu for gpu in gpus}
        if not 1 <= args.replicas <= MOST_REPLICAS:
            raise InputError(
                f"--replicas: {args.replicas} is out of range", f"give 1 to {MOST_REPLICAS}"
            )
        return {f"{gpu}::{number}": gpu for gpu in gpus for number in range(args.replicas)}
    instances = [
        (instance, gpu.id)
        for gpu in snapshot.gpus
        if gpu.mig is not None and not gpu.is_lost
        for instance in gpu.mig.instances
    ]
    profile = args.mig.removeprefix("mig-")
    devices = {instance.uuid: gpu for instance, gpu in instances if instance.profile == profile}
    if not devices:
        known = ", ".join(sorted({instance.profile or "?" for instance, _ in instances}))
        raise InputError(
            f"no MIG instance has the profile {args.mig!r}",
            f"this node has {known}" if instances else "this node has no MIG instances",
        )
    return devices


def _allocation(request: Request, best: Allocation, args: Namespace) -> Answer:
    """Return the best set in all formats, with the set of ``--why-not`` if there is one."""
    other = _other(request, args)
    plain = {"schema": SCHEMA, **best.to_plain()}
    short = f"{request.names(best.chosen)}\n"
    if args.explain:
        short += _bullets(best.reasons)
    if other is not None:
        verdict = _verdict(request, best, other)
        short += f"not {request.names(other.chosen)}: {verdict}\n"
        plain["why_not"] = {
            **_plain_set(other),
            "lost_at": other.score.lost_at(best.score, request.terms),
            "verdict": verdict,
        }
    return Answer(plain=plain, table=_table(request, best, other, args), short=short)


def _other(request: Request, args: Namespace) -> Allocation | None:
    """Return the assessment of the set of ``--why-not``; ``None`` without the flag."""
    if not args.why_not:
        return None
    chosen = request.ids(args.why_not)
    if len(chosen) != request.size:
        raise InputError(
            f"--why-not names {len(chosen)}, the request is for {request.size}",
            "compare sets of one size",
        )
    if absent := [device for device in request.required if device not in chosen]:
        missing = ", ".join(map(request.name, absent))
        raise InputError(f"--why-not lacks what is required: {missing}", "add it to the set")
    return request.allocator.describe(chosen, request.available, request.degraded)


def _verdict(request: Request, best: Allocation, other: Allocation | Alternative) -> str:
    if set(other.chosen) == set(best.chosen):
        return "this is the set that is chosen"
    return compared(best.score, other.score, request.terms)


def _table(request: Request, best: Allocation, other: Allocation | None, args: Namespace) -> str:
    proof = "proven optimal" if best.is_optimal else "not proven optimal"
    rules = f"policy {best.rules.policy}, model {best.rules.model}, engine {best.engine}"
    text = f"{request.names(best.chosen)}   {proof}   {rules}\n\n"

    by_id = {gpu.id: gpu for gpu in request.snapshot.gpus}
    devices = []
    for device in best.chosen:
        gpu = by_id[request.devices.get(device, device)]
        node = "?" if gpu.numa_node is None else gpu.numa_node
        devices.append((gpu.name, device, str(gpu.pci or "?"), f"NUMA {node}"))
    text += f"{output.table(devices, indent=2)}\nwhy\n{_bullets(best.reasons)}"

    if best.alternatives:
        rows = (
            (request.names(alternative.chosen), _verdict(request, best, alternative))
            for alternative in best.alternatives
        )
        text += f"next best\n{output.table(rows, indent=2)}"
    if other is not None:
        text += f"why not {request.names(other.chosen)}\n  {_verdict(request, best, other)}\n"
        text += _bullets(
            request.allocator.describe(other.chosen, degraded=request.degraded).reasons
        )
    if args.explain:
        sets: list[Allocation | Alternative] = [best, *best.alternatives]
        sets += [] if other is None else [other]
        scores = [each.score.to_plain() for each in sets]
        order = [*request.terms, *(key for key in scores[0] if key not in request.terms)]
        head = ["", *(request.names(each.chosen) for each in sets)]
        lines = ([key, *(str(score[key]) for score in scores)] for key in order)
        text += f"scores\n{output.table([head, *lines], indent=2)}"
    return text


def _bullets(reasons: Sequence[str]) -> str:
    return "".join(f"  {output.clean(reason)}\n" for reason in reasons)


def _plain_set(allocation: Allocation) -> dict[str, Any]:
    return {
        "chosen": list(allocation.chosen),
        "indices": list(allocation.indices),
        "score": allocation.score.to_plain(),
    }


def _comparison(request: Request, ours: Allocation, args: Namespace) -> Answer:
    """Compare our choice with NVIDIA's policy on the GPUs in the given order."""
    chosen: tuple[str | None, ...] = ()  # in NVIDIA's order; `None` is a device that does not exist
    theirs: Allocation | None = None
    crash: str | None = None
    try:
        chosen = BestEffort(request.snapshot).allocate(
            request.available, request.required, request.size
        )
    except PeerPanics as error:
        crash = error.cause
    if None in chosen:
        crash = f"it hands out {chosen.count(None)} of {len(chosen)} devices that do not exist"
    elif chosen:
        theirs = request.allocator.describe(
            [name for name in chosen if name], request.available, request.degraded
        )

    if crash is not None:
        taken, verdict = "crash", f"it would crash here: {crash}"
    elif theirs is None:
        taken, verdict = "no set", "it finds no set, and the pod fails"
    else:
        taken = names(theirs.indices)
        if set(ours.chosen) == set(theirs.chosen):
            verdict = "the same set as ours"
        else:
            verdict = compared(ours.score, theirs.score, request.terms)
            verdict += f"; ours is {names(ours.indices)}"
    plain = {
        "schema": COMPARISON_SCHEMA,
        "policy": NVIDIA,
        "model": ours.rules.model.value,
        "answer": list(chosen),
        "crash": crash is not None,
        "problem": None if theirs else crash or "it finds no set",
        "verdict": verdict,
        "score": theirs.score.to_plain() if theirs else None,
        "ours": _plain_set(ours),
    }

    table = f"{taken}   NVIDIA's best-effort, imitated to compare with\n\n"
    order = " ".join(request.name(device) for device in request.available)
    table += f"  of {order}, in this order: its answer depends on it\n"
    table += f"  {output.clean(verdict)}\n"
    rows: list[tuple[str, ...]] = [("", "GPUs", "GB/s", "NUMA nodes", "worth left")]
    for who, allocation in (("NVIDIA", theirs), ("ours", ours)):
        if allocation is not None:
            score = allocation.score
            bandwidth = "-" if score.bandwidth_gb_s is None else f"{score.bandwidth_gb_s:g}"
            left = f"{score.remainder_value:g}"
            rows.append((who, names(allocation.indices), bandwidth, str(score.numa_nodes), left))
    table += output.table(rows, indent=2)
    if args.explain:
        table += f"why ours\n{_bullets(ours.reasons)}"
    return Answer(plain=plain, table=table, short=f"{taken}\n  {output.clean(verdict)}\n")
