"""``nodetopo allocate``: which GPUs a request gets, and why."""

from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent.allocation.allocator import Allocation, Allocator, Alternative
from agent.allocation.best_effort import BestEffort, PeerPanics
from agent.allocation.explain import compared, names
from agent.allocation.measured import BandwidthTable, Measured, coverage
from agent.allocation.requests import resolve, usable
from agent.allocation.rules import TERMS, Model, Policy, Rules
from agent.cli import output
from agent.cli.files import STDIO, read_text
from agent.cli.output import Answer, emit, note
from agent.cli.parser import Parser, add_output
from agent.cli.source import add_source, load
from agent.config.data_files import parse
from agent.errors import DecodeError, InputError
from agent.model.snapshot import Snapshot

# ``--bandwidth-model`` and ``--bandwidth-table``: how bandwidth is judged, for one command.


def add_bandwidth(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--bandwidth-model",
        choices=tuple(model.value for model in Model),
        default=Model.RING.value,
        metavar="WORD",
        help=f"{', '.join(Model)} (default: ring)",
    )
    parser.add_argument(
        "--bandwidth-table",
        metavar="FILE",
        help="measured bandwidths, YAML or JSON, - for stdin; they win over the model",
    )


def check_stdin(args: Namespace) -> None:
    """Hold that no two flags read standard input.

    Raises:
        InputError: they do.
    """
    if args.bandwidth_table == STDIO and STDIO in (args.snapshot, args.topo_m, args.nccl_xml):
        raise InputError("standard input can be read only once", "name one of the two files")


def measured(args: Namespace, snapshot: Snapshot) -> Measured | None:
    """Return the figures of the file that *args* name; say how much of the node it covers.

    Raises:
        InputError: the file cannot be used, or the model needs one.
    """
    name = args.bandwidth_table
    if name is None:
        if args.bandwidth_model == Model.TABLE:
            raise InputError(
                "the model `table` needs measured bandwidths", "add --bandwidth-table FILE"
            )
        return None
    found = _on(name, parse(name, read_text(name)), snapshot)
    note("note", f"{name}: {coverage(found, len(snapshot.gpus))}")
    return found


def _on(name: str, table: BandwidthTable, snapshot: Snapshot) -> Measured:
    try:
        return table.on(snapshot)
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", error.cure) from None


# A request of the command line, in the ids of the devices that it is about.

MOST_REPLICAS = 128
"""Beyond what a GPU is shared by; NVIDIA's plugin sets no limit."""


class Places(Protocol):
    """What :class:`Allocator` and its counterpart for shared GPUs have in common."""

    def allocate(
        self, *, available: Collection[str], required: Collection[str] = (), size: int
    ) -> Allocation:
        """Return the best set."""

    def describe(
        self, chosen: Collection[str], available: Collection[str] | None = None
    ) -> Allocation:
        """Return what a set is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of whom.

    Attributes:
        devices: the GPU id by device id, in device order; equal for whole GPUs.
        available, required: device ids; *available* in the order given.
        terms: the fields of a score in the order in which they are compared.
    """

    snapshot: Snapshot
    allocator: Places
    rules: Rules
    devices: Mapping[str, str]
    available: tuple[str, ...]
    required: tuple[str, ...]
    size: int
    terms: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        """Whether it is about MIG instances or replicas."""
        return any(device != gpu for device, gpu in self.devices.items())

    def name(self, device: str) -> str:
        """Return what people call *device*: ``GPU5`` for a whole GPU, its id for a part."""
        names = {} if self.is_shared else {gpu.id: gpu.name for gpu in self.snapshot.gpus}
        return names.get(device, device)


def request(snapshot: Snapshot, args: Namespace, policy: Policy) -> Request:
    """Return the request that *args* hold.

    Raises:
        InputError: a device is unknown, or the bandwidth table cannot be used.
    """
    rules = Rules(
        policy=policy, model=Model(args.bandwidth_model), measured=measured(args, snapshot)
    )
    devices = _devices(snapshot, args)
    is_shared = args.replicas is not None or args.mig is not None
    allocator, terms = _shared(snapshot, devices, rules, args) if is_shared else (None, ())
    return Request(
        snapshot=snapshot,
        allocator=allocator or Allocator(snapshot, rules),
        rules=rules,
        devices=devices,
        available=ids(snapshot, devices, args.available) if args.available else tuple(devices),
        required=ids(snapshot, devices, args.required),
        size=args.size,
        terms=terms or TERMS[policy],
    )


def ids(
    snapshot: Snapshot, devices: Mapping[str, str], arguments: Sequence[str]
) -> tuple[str, ...]:
    """Return the ids that *arguments* name, by comma: of devices, or of GPUs for all of theirs.

    Raises:
        InputError: there is none of that name.
    """
    texts = [text.strip() for argument in arguments for text in argument.split(",")]
    found = [name for text in texts if text for name in _named(snapshot, devices, text)]
    return tuple(dict.fromkeys(found))


def _named(snapshot: Snapshot, devices: Mapping[str, str], text: str) -> list[str]:
    if text in devices:
        return [text]
    name, separator, number = text.partition("::")
    gpu = resolve(snapshot, name).id
    if not separator:
        own = [device for device, parent in devices.items() if parent == gpu]
        return own or [gpu]  # a GPU that is lost, or has none of these devices
    if f"{gpu}::{number}" not in devices:
        raise InputError(f"unknown device {text!r}", "replicas are GPU0::0, GPU0::1, and so on")
    return [f"{gpu}::{number}"]


def _devices(snapshot: Snapshot, args: Namespace) -> Mapping[str, str]:
    if args.mig is not None:
        return _instances(snapshot, args.mig)
    gpus = usable(snapshot)
    if args.replicas is None:
        return {gpu: gpu for gpu in gpus}
    if not 1 <= args.replicas <= MOST_REPLICAS:
        raise InputError(
            f"--replicas: {args.replicas} is out of range", f"give 1 to {MOST_REPLICAS}"
        )
    return {f"{gpu}::{number}": gpu for gpu in gpus for number in range(args.replicas)}


def _instances(snapshot: Snapshot, profile: str) -> Mapping[str, str]:
    """Return the MIG instances of *profile* on GPUs that are not lost.

    Raises:
        InputError: there is none.
    """
    there = [
        (instance, gpu.id)
        for gpu in snapshot.gpus
        if gpu.mig is not None and not gpu.is_lost
        for instance in gpu.mig.instances
    ]
    wanted = profile.removeprefix("mig-")
    found = {instance.uuid: gpu for instance, gpu in there if instance.profile == wanted}
    if not found:
        profiles = sorted({instance.profile or "?" for instance, _ in there})
        raise InputError(
            f"no MIG instance has the profile {profile!r}",
            f"this node has {', '.join(profiles)}" if there else "this node has no MIG instances",
        )
    return found


def _shared(
    snapshot: Snapshot, devices: Mapping[str, str], rules: Rules, args: Namespace
) -> tuple[Places, tuple[str, ...]]:
    from agent.allocation.shared.allocator import SharedAllocator  # noqa: PLC0415 - only here
    from agent.allocation.shared.terms import shared_terms  # noqa: PLC0415 - only here

    # NVIDIA's plugin spreads replicas by default; contention is what counts there. MIG
    # instances do not disturb each other, and packed they leave whole GPUs whole.
    spread = args.replicas is not None
    allocator = SharedAllocator(snapshot, devices, rules, spread=spread)
    return allocator, shared_terms(rules.policy, spread=spread)


# An allocation in all formats.

SCHEMA = "nodetopo/allocate/v1"
"""Names the JSON shape, described by ``docs/reference/schema/allocate.json``."""


def show_allocation(snapshot: Snapshot, args: Namespace) -> None:
    """Print the best set for the request in *args*.

    Raises:
        InputError: a GPU is unknown, or no set fits.
    """
    asked = request(snapshot, args, Policy(args.policy))
    found = asked.allocator.allocate(
        available=asked.available, required=asked.required, size=asked.size
    )
    other = _why_not(asked, args)
    plain = {"schema": SCHEMA, **found.to_plain()}
    if other is not None:
        plain["why_not"] = _plain_other(asked, found, other)
    emit(
        Answer(
            plain=plain,
            table=_table(asked, found, other, args),
            short=_short(asked, found, other, args),
        ),
        args,
    )


def _why_not(asked: Request, args: Namespace) -> Allocation | None:
    """Return what the set of ``--why-not`` is worth.

    Raises:
        InputError: the request could not be met with it.
    """
    if not args.why_not:
        return None
    chosen = ids(asked.snapshot, asked.devices, args.why_not)
    if len(chosen) != asked.size:
        raise InputError(
            f"--why-not names {len(chosen)}, the request is for {asked.size}",
            "compare sets of one size",
        )
    if absent := [name for name in asked.required if name not in chosen]:
        missing = ", ".join(asked.name(device) for device in absent)
        raise InputError(f"--why-not lacks what is required: {missing}", "add it to the set")
    return asked.allocator.describe(chosen, asked.available)


def _verdict(asked: Request, found: Allocation, other: Allocation | Alternative) -> str:
    if set(other.chosen) == set(found.chosen):
        return "this is the set that is chosen"
    return compared(found.score, other.score, asked.terms)


def _plain_other(asked: Request, found: Allocation, other: Allocation) -> dict[str, Any]:
    score = other.score
    differs = (name for name in asked.terms if getattr(score, name) != getattr(found.score, name))
    return {
        "chosen": list(other.chosen),
        "indices": list(other.indices),
        "score": other.score.to_plain(),
        "lost_at": next(differs, None),
        "verdict": _verdict(asked, found, other),
    }


def _short(asked: Request, found: Allocation, other: Allocation | None, args: Namespace) -> str:
    text = f"{_names(asked, found.chosen)}\n"
    if args.explain:
        text += "".join(f"  {output.clean(reason)}\n" for reason in found.reasons)
    if other is not None:
        text += f"not {_names(asked, other.chosen)}: {_verdict(asked, found, other)}\n"
    return text


def _table(asked: Request, found: Allocation, other: Allocation | None, args: Namespace) -> str:
    proof = "proven optimal" if found.is_optimal else "not proven optimal"
    rules = f"policy {found.rules.policy}, model {found.rules.model}, engine {found.engine}"
    text = f"{_names(asked, found.chosen)}   {proof}   {rules}\n\n"
    text += f"{output.table(_allocation_text_devices(asked, found), indent=2)}\nwhy\n"
    text += "".join(f"  {output.clean(reason)}\n" for reason in found.reasons)
    if found.alternatives:
        rows = (
            (_names(asked, one.chosen), _verdict(asked, found, one)) for one in found.alternatives
        )
        text += f"next best\n{output.table(rows, indent=2)}"
    if other is not None:
        text += f"why not {_names(asked, other.chosen)}\n  {_verdict(asked, found, other)}\n"
        alone = asked.allocator.describe(other.chosen)
        text += "".join(f"  {output.clean(reason)}\n" for reason in alone.reasons)
    return text + (_scores(asked, found, other) if args.explain else "")


def _allocation_text_devices(asked: Request, found: Allocation) -> list[tuple[str, ...]]:
    by_id = {gpu.id: gpu for gpu in asked.snapshot.gpus}
    rows: list[tuple[str, ...]] = []
    for device in found.chosen:
        gpu = by_id[asked.devices.get(device, device)]
        rows.append((gpu.name, device, str(gpu.pci or "?"), f"NUMA {_known(gpu.numa_node)}"))
    return rows


def _scores(asked: Request, found: Allocation, other: Allocation | None) -> str:
    sets: list[Allocation | Alternative] = [found, *found.alternatives]
    sets += [other] if other is not None else []
    columns = [{key: str(value) for key, value in one.score.to_plain().items()} for one in sets]
    names = [_names(asked, one.chosen) for one in sets]
    order = [*asked.terms, *(key for key in columns[0] if key not in asked.terms)]
    rows = [[key, *(column[key] for column in columns)] for key in order]
    return f"scores\n{output.table([['', *names], *rows], indent=2)}"


def _names(asked: Request, chosen: tuple[str, ...]) -> str:
    by_id = {gpu.id: gpu.name for gpu in asked.snapshot.gpus}
    counts = Counter(by_id[asked.devices.get(device, device)] for device in chosen)
    if not asked.is_shared:
        return " ".join(counts)
    return ", ".join(f"{count} of {name}" for name, count in counts.items())


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


# What NVIDIA's device plugin would take, beside what we would, in all formats.

NVIDIA_TEXT_SCHEMA = "nodetopo/allocate-nvidia/v1"
"""Names the JSON shape, described by ``docs/reference/schema/allocate-nvidia.json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Two answers to one request.

    Attributes:
        answer: NVIDIA's, in its order; ``None`` is a device that does not exist.
        theirs: what that is worth; ``None`` where it is no set of the size asked for.
        problem: why it is none.
    """

    answer: tuple[str | None, ...]
    theirs: Allocation | None
    ours: Allocation
    is_crash: bool
    problem: str | None
    verdict: str


def show_nvidia(snapshot: Snapshot, args: Namespace) -> None:
    """Print what NVIDIA's policy takes from the GPUs in the order given, and how ours compares.

    Raises:
        InputError: a GPU is unknown, no set fits, or the policy is not imitated for it.
    """
    for flag, value in (
        ("--replicas", args.replicas),
        ("--mig", args.mig),
        ("--why-not", args.why_not),
    ):
        if value:
            raise InputError(
                f"--policy nvidia does not go with {flag}", "leave it out, or take a policy of ours"
            )
    asked = request(snapshot, args, Policy.BEST)
    found = _compare(asked)
    emit(
        Answer(
            plain=_plain(found),
            table=_nvidia_text_table(asked, found, args),
            short=_nvidia_text_short(found),
        ),
        args,
    )


def _compare(asked: Request) -> _Compared:
    ours = asked.allocator.allocate(
        available=asked.available, required=asked.required, size=asked.size
    )
    policy = BestEffort(asked.snapshot)
    try:
        chosen = policy.allocate(asked.available, asked.required, asked.size)
    except PeerPanics as error:
        return _without_set((), ours, error.cause)
    if None in chosen:
        cause = f"it hands out {chosen.count(None)} of {len(chosen)} devices that do not exist"
        return _without_set(chosen, ours, cause)
    if not chosen:
        return _without_set(chosen, ours, None)
    theirs = asked.allocator.describe([name for name in chosen if name], asked.available)
    return _Compared(
        answer=chosen,
        theirs=theirs,
        ours=ours,
        is_crash=False,
        problem=None,
        verdict=_nvidia_text_verdict(asked, ours, theirs),
    )


def _without_set(chosen: tuple[str | None, ...], ours: Allocation, crash: str | None) -> _Compared:
    verdict = f"it would crash here: {crash}" if crash else "it finds no set, and the pod fails"
    return _Compared(
        answer=chosen,
        theirs=None,
        ours=ours,
        is_crash=crash is not None,
        problem=crash or "it finds no set",
        verdict=verdict,
    )


def _nvidia_text_verdict(asked: Request, ours: Allocation, theirs: Allocation) -> str:
    if set(ours.chosen) == set(theirs.chosen):
        return "the same set as ours"
    return f"{compared(ours.score, theirs.score, asked.terms)}; ours is {names(ours.indices)}"


def _plain(found: _Compared) -> dict[str, Any]:
    return {
        "schema": NVIDIA_TEXT_SCHEMA,
        "policy": "nvidia",
        "model": found.ours.rules.model.value,
        "answer": list(found.answer),
        "crash": found.is_crash,
        "problem": found.problem,
        "verdict": found.verdict,
        "score": found.theirs.score.to_plain() if found.theirs else None,
        "ours": {
            "chosen": list(found.ours.chosen),
            "indices": list(found.ours.indices),
            "score": found.ours.score.to_plain(),
        },
    }


def _nvidia_text_short(found: _Compared) -> str:
    return f"{_taken(found)}\n  {output.clean(found.verdict)}\n"


def _nvidia_text_table(asked: Request, found: _Compared, args: Namespace) -> str:
    order = [gpu.name for name in asked.available for gpu in asked.snapshot.gpus if gpu.id == name]
    text = f"{_taken(found)}   NVIDIA's best-effort, imitated to compare with\n\n"
    text += f"  of {' '.join(order)}, in this order: its answer depends on it\n"
    text += f"  {output.clean(found.verdict)}\n"
    rows: list[tuple[str, ...]] = [("", "GPUs", "GB/s", "NUMA nodes", "worth left")]
    rows += [_row("NVIDIA", found.theirs)] if found.theirs else []
    text += output.table([*rows, _row("ours", found.ours)], indent=2)
    if args.explain:
        text += "why ours\n"
        text += "".join(f"  {output.clean(reason)}\n" for reason in found.ours.reasons)
    return text


def _row(who: str, found: Allocation) -> tuple[str, ...]:
    score = found.score
    bandwidth = "-" if score.bandwidth_gb_s is None else f"{score.bandwidth_gb_s:g}"
    return who, names(found.indices), bandwidth, str(score.numa_nodes), f"{score.remainder_value:g}"


def _taken(found: _Compared) -> str:
    return names(found.theirs.indices) if found.theirs else "crash" if found.is_crash else "no set"


NVIDIA = "nvidia"
"""Not a policy of ours: NVIDIA's best-effort imitated, to compare with."""


POLICIES = (*(policy.value for policy in Policy), NVIDIA)


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument("--size", metavar="N", type=int, required=True, help="how many GPUs")
    for flag, text in (
        ("--available", "GPUs to choose from, by comma (default: all that are not lost)"),
        ("--required", "GPUs that must be among the chosen, by comma"),
        ("--why-not", "a set of the same size: also print where it loses"),
    ):
        parser.add_argument(flag, metavar="A,B", action="append", default=[], help=text)
    _add_rules(parser)
    _add_shares(parser)
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also print the reasons with -o short, and the scores with -o table",
    )
    add_output(parser)
    add_source(parser)
    parser.set_defaults(run=run)


def _add_rules(parser: Parser) -> None:
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default=Policy.BEST.value,
        metavar="WORD",
        help=f"{', '.join(POLICIES)} (default: best; nvidia is theirs, to compare)",
    )
    add_bandwidth(parser)


def _add_shares(parser: Parser) -> None:
    group = parser.add_argument_group("shared GPUs", "default: whole GPUs")
    shares = group.add_mutually_exclusive_group()
    shares.add_argument(
        "--replicas", metavar="N", type=int, help="offer each GPU N times, as UUID::0 to UUID::N-1"
    )
    shares.add_argument(
        "--mig", metavar="PROFILE", help="choose among the MIG instances of a profile: 1g.10gb"
    )


def run(args: Namespace) -> int:
    """Print the best set; 0.

    Raises:
        InputError: a GPU is unknown, no set fits, or flags contradict each other.
    """
    check_stdin(args)
    show = show_nvidia if args.policy == NVIDIA else show_allocation
    show(load(args), args)
    return 0
