"""``nodetopo nccl env``: the variables that tell a job which NIC is whose."""

import json
import textwrap
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from nodetopo.allocation.requests import resolve
from nodetopo.cli import output
from nodetopo.cli.flags.nccl import CONF, POD
from nodetopo.cli.lists import device_names
from nodetopo.cli.output import Answer, emit, say
from nodetopo.cli.source import load
from nodetopo.drawing.devices import find
from nodetopo.errors import InputError, UnreadableError, closest
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.advice import JobAdvice, advise, checked_version, for_one_job, nearest_set
from nodetopo.nccl.job import NIC_SELECTION, JobVariable
from nodetopo.nccl.variables import NEWEST
from nodetopo.rdma.pairing import Pairing
from nodetopo.topology.affinity import rail_numbers
from nodetopo.topology.matrix import word as level

ENV_SCHEMA = "nodetopo/nccl-env/v1"
"""Names the JSON shape, described by ``docs/reference/schema/nccl-env.json``."""

LONGEST_VALUE = 1023
"""Characters of a value that NCCL reads from a file (NVIDIA/nccl src/misc/param.cc)."""

COMMENT_WIDTH = 100
"""Columns of a comment in a file; NCCL takes lines of up to 4095 characters."""


def run(args: Namespace) -> int:
    """Print the variables for a job, with reasons; 0.

    Raises:
        InputError: a device or the version is unknown, or the path is relative.
        UnreadableError: the node's HCAs are unknown, or NCCL could not read the file.
    """
    version = None if args.nccl_version is None else checked_version(args.nccl_version)
    path = args.topo_file
    if path is not None and not (path.startswith("/") and path.isprintable()):
        raise InputError(f"--topo-file: not an absolute path: {path!r}", "start it with /")
    snapshot = load(args)
    if snapshot.hcas is None:
        cure = "name a source that lists them, such as a snapshot of `nodetopo capture`"
        raise UnreadableError("could not tell which HCAs there are", cure)
    gpus = _gpus(snapshot, args.gpus)
    hcas = nearest_set(snapshot, gpus) if args.hcas is None else _hcas(snapshot, args.hcas)
    numbers = rail_numbers(snapshot) if args.rails else None
    every = advise(snapshot, gpus, hcas, nccl=version, topology_file=path, rails=numbers)
    if args.only is not None:
        every = _only(every, [word.strip() for word in args.only.split(",") if word.strip()])
    every = for_one_job(every)
    # Without a version, the newest release's values apply.
    to_set = [
        advice
        for advice in every
        if advice.value is not None
        and (advice.library != "NCCL" or advice.is_about(version or NEWEST))
    ]
    if args.output == CONF:
        say(_conf(to_set))
        return 0
    env = {str(advice.variable): advice.value or "" for advice in to_set}
    if args.output == POD:
        say(_pod(env))
        return 0
    pairs = _pairs(snapshot, gpus, hcas)
    plain = {
        "schema": ENV_SCHEMA,
        "gpus": [gpu.id for gpu in gpus],
        "hcas": [hca.name for hca in hcas],
        "pairs": pairs,
        "env": env,
        "variables": [_plain(advice) for advice in every],
    }
    short = "".join(f"export {name}={_quoted(value)}\n" for name, value in env.items())
    emit(Answer(plain=plain, table=_table(pairs, every), short=short), args)
    return 0


def _gpus(snapshot: Snapshot, text: str | None) -> tuple[Gpu, ...]:
    named = (
        snapshot.gpus
        if text is None
        else [resolve(snapshot, name) for name in device_names([text])]
    )
    return tuple(gpu for _, gpu in sorted({gpu.index: gpu for gpu in named}.items()))


def _hcas(snapshot: Snapshot, text: str) -> tuple[Hca, ...]:
    hcas = {}
    for word in device_names([text]):
        device = find(snapshot, word)
        if not isinstance(device, Hca):
            raise InputError(f"--hcas: {word} is no HCA", "name one such as mlx5_0 or NIC0")
        hcas[device.name] = device
    return tuple(hcas.values())


def _only(every: Sequence[JobAdvice], names: Sequence[str]) -> tuple[JobAdvice, ...]:
    known = {*map(str, JobVariable), NIC_SELECTION, *(str(advice.variable) for advice in every)}
    if unknown := [name for name in names if name not in known]:
        close = closest(unknown[0], known)
        cure = f"did you mean {close!r}?" if close else f"variables are: {', '.join(sorted(known))}"
        raise InputError(f"--only: unknown variable {unknown[0]!r}", cure)
    return tuple(advice for advice in every if advice.variable in names)


def _pairs(snapshot: Snapshot, gpus: Sequence[Gpu], hcas: Sequence[Hca]) -> list[dict[str, Any]]:
    """Pair each GPU with one of the job's HCAs, the nearest while there are enough."""
    gpu_at = {gpu.index: at for at, gpu in enumerate(snapshot.gpus)}
    every = snapshot.hcas or ()
    usable = [every.index(hca) for hca in hcas if not hca.is_down]
    pairs = Pairing(snapshot=snapshot).matched([gpu_at[gpu.index] for gpu in gpus], usable)
    return [
        {
            "gpu": snapshot.gpus[pair.gpu].name,
            "hca": every[pair.hca].name,
            "distance": None if pair.closeness is None else level(pair.closeness),
        }
        for pair in pairs
    ]


def _plain(advice: JobAdvice) -> dict[str, Any]:
    return {
        "name": str(advice.variable),
        "value": advice.value,
        "library": advice.library,
        "since": advice.since,
        "until": advice.until,
        "reason": advice.reason,
        "source": advice.source,
    }


def _table(pairs: Sequence[Mapping[str, Any]], every: Sequence[JobAdvice]) -> str:
    text = ""
    if pairs:
        rows = [(pair["gpu"], pair["hca"], pair["distance"] or "?") for pair in pairs]
        text = output.table([("GPU", "HCA", "DISTANCE"), *rows]) + "\n"
    for title, is_set in (("set", True), ("leave unset", False)):
        chosen = [advice for advice in every if (advice.value is not None) is is_set]
        if not chosen:
            continue
        text += f"{title}\n"
        for advice in chosen:
            name = (
                str(advice.variable)
                if advice.value is None
                else f"{advice.variable}={advice.value}"
            )
            text += output.table([(name,)], indent=2)
            text += output.table(
                [(_releases(advice), advice.reason), ("", advice.source)], indent=4
            )
    return text


def _releases(advice: JobAdvice) -> str:
    if advice.until is None:
        return f"{advice.library} {advice.since} on"
    return f"{advice.library} {advice.since} to {advice.until}"


def _quoted(value: str) -> str:
    """Return *value* for a shell; zsh would look for a program after a bare ``=``."""
    return "'" + value.replace("'", "'\\''") + "'"


def _conf(to_set: Sequence[JobAdvice]) -> str:
    """Return a file for NCCL: ``/etc/nccl.conf`` or ``NCCL_CONF_FILE`` (2.23 on).

    Only NCCL's own variables: other libraries do not read it, and can have read their
    environment before NCCL adds to it.
    """
    lines = []
    for advice in to_set:
        if advice.library != "NCCL" or advice.value is None:
            continue
        if len(advice.value) > LONGEST_VALUE:
            problem = (
                f"{advice.variable} has {len(advice.value)} characters, NCCL reads {LONGEST_VALUE}"
            )
            raise UnreadableError(f"{problem} from a file", "set it with `-o short` or `-o pod`")
        comment = f"{_releases(advice)}: {output.clean(advice.reason)}"
        lines += textwrap.wrap(comment, COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# ")
        lines.append(f"{advice.variable}={advice.value}")
    return "".join(f"{line}\n" for line in lines)


def _pod(env: Mapping[str, str]) -> str:
    """Return the ``env`` of a container in YAML; each value is quoted, as YAML 1.1 reads ``=``."""
    entries = (f"- name: {name}\n  value: {json.dumps(value)}\n" for name, value in env.items())
    return "env:\n" + "".join(entries) if env else "env: []\n"
