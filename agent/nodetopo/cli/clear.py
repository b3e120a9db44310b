"""``nodetopo health --clear GPU``: bring GPUs back, through the daemon of this node."""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nodetopo.cli import output
from nodetopo.cli.output import Answer, emit, warn
from nodetopo.cli.source import files_of, settings
from nodetopo.components.gpus.health.clear_socket import ClearAnswer, ask, processes, sockets_in
from nodetopo.components.gpus.health.clearing import (
    ClearedGpu,
    ClearRequest,
    SaidFault,
    saved_clearing,
)
from nodetopo.components.gpus.state_files import health_document
from nodetopo.deviceplugin import sockets
from nodetopo.errors import AgentError, InputError, UnreadableError
from nodetopo.kernel.settings.kept import health_file
from nodetopo.model.kubelet_state import OUR_SOCKETS

SCHEMA = "nodetopo/health-clear/v1"
"""Names the JSON shape, described by ``docs/reference/schema/health-clear.json``."""


class _Done(NamedTuple):
    """What a request did."""

    gpus: Sequence[ClearedGpu]
    daemons: int  # how many daemons answered; 0 if the file was changed instead
    is_saved: bool


def clear(args: Namespace) -> int:
    """Clear the GPUs that the flags name; 1 if one is still Unhealthy.

    Raises:
        InputError: a name fits no GPU, or a confirmation is missing.
        UnreadableError: no daemon could do it.
    """
    if args.only or args.machine is not None or any(files_of(args)):
        raise InputError("--clear is for the GPUs of this node", "leave out --only and the source")
    names = tuple(name for word in args.clear for name in word.split(",") if name.strip())
    if not names:
        raise InputError("--clear names no GPU", "name one, such as --clear GPU3")
    wanted = settings(args)
    path = health_file(wanted)
    if path is None:
        cause = "simulated GPUs, and a daemon with health-file: none, keep no verdicts here"
        raise InputError(cause, "name the daemon's file with --health-file")
    request = ClearRequest(gpus=names, is_dry_run=args.only_looks, is_confirmed=args.yes)
    done = _done(path, wanted.device_plugin_dir, request)
    if not done.daemons:
        warn(args, f"no daemon runs on this node: {path} is all that was looked at")
    if not done.is_saved:
        warn(args, f"{path} cannot be written: the verdict returns if the daemon restarts")
    emit(_answer(done, is_dry_run=args.only_looks), args)
    return 0 if all(gpu.is_healthy for gpu in done.gpus) else 1


def _done(path: Path, plugins: Path, request: ClearRequest) -> _Done:
    daemons = processes(sockets_in(path.parent))
    others = processes([one for one in sockets.all_in(plugins) if one.name.startswith(OUR_SOCKETS)])
    strangers = set(others.values()) - set(daemons.values())
    if strangers:  # it would restore its verdicts in the file, and they would return
        what = "another nodetopo" if daemons else "the nodetopo"
        socket = next(one.name for one, process in others.items() if process in strangers)
        raise UnreadableError(
            f"{what} on this node takes no requests on a socket beside {path} (it serves {socket})",
            "end a rollout or update the daemon first, or name its file with --health-file",
        )
    if not daemons:
        return _in_file(path, request)
    answers = ask(tuple(daemons), request)
    for answer in answers:
        _raise(answer)
    return _Done(_merged(answers), len(answers), all(answer.is_saved for answer in answers))


def _raise(answer: ClearAnswer) -> None:
    if answer.problem is None:
        return
    kind: type[AgentError] = InputError if answer.is_input else UnreadableError
    raise kind(answer.problem, answer.cure or "")


def _merged(answers: Iterable[ClearAnswer]) -> Sequence[ClearedGpu]:
    """Return each GPU once, by the daemon that holds most against it."""
    found: dict[str, ClearedGpu] = {}
    for gpu in (gpu for answer in answers for gpu in answer.gpus):
        before = found.get(gpu.uuid, gpu)
        found[gpu.uuid] = max(before, gpu, key=lambda one: (len(one.left), len(one.faults)))
    return tuple(found.values())


def _in_file(path: Path, request: ClearRequest) -> _Done:
    """Change the file of a node on which no daemon runs."""
    file = health_document(path)
    saved = file.read()
    if saved.content is None:
        cause = f"no daemon answers, and {saved.problem or f'{path} does not exist'}"
        raise UnreadableError(cause, "start the daemon, or name its file with --health-file")
    cleared = saved_clearing(saved.content, request)
    if not request.is_dry_run and (problem := file.write(cleared.state)) is not None:
        raise UnreadableError(problem, "nothing was cleared")
    if processes(sockets_in(path.parent)):
        raise UnreadableError("a daemon started meanwhile", "repeat: it takes the request itself")
    return _Done(cleared.gpus, 0, is_saved=True)


def _answer(done: _Done, *, is_dry_run: bool) -> Answer:
    lines = [line for gpu in done.gpus for line in _lines(gpu, is_dry_run=is_dry_run)]
    if not lines:
        lines = ["no GPU has a verdict against it"]
    return Answer(
        plain={
            "schema": SCHEMA,
            "daemons": done.daemons,
            "dry_run": is_dry_run,
            "saved": done.is_saved,
            "gpus": [_plain(gpu) for gpu in done.gpus],
        },
        table="".join(f"{output.clean(line)}\n" for line in lines),
        short="".join(f"{_short(gpu)}\n" for gpu in done.gpus),
    )


def _lines(gpu: ClearedGpu, *, is_dry_run: bool) -> Iterable[str]:
    if not gpu.faults and not gpu.left:
        yield f"{gpu.label}: there is no verdict to clear"
        return
    yield f"{gpu.label}:"
    verb = "would clear" if is_dry_run else "cleared"
    kept = {fault.reason for fault in gpu.left}
    for fault in gpu.faults:
        word = "still reported" if fault.reason in kept else verb
        yield f"  {word}: {fault.reason} ({fault.kind}): {fault.said}"
    before = {fault.reason for fault in gpu.faults}
    for fault in gpu.left:
        if fault.reason not in before:
            yield f"  reported now: {fault.reason} ({fault.kind}): {fault.said}"
    yield f"  {'would be' if is_dry_run else 'is'} {_state(gpu)}"


def _state(gpu: ClearedGpu) -> str:
    if not gpu.is_healthy:
        return "Unhealthy: a verdict on what the GPU reports returns at once"
    return "Healthy, and allocated last" if gpu.left else "Healthy"


def _short(gpu: ClearedGpu) -> str:
    return output.clean(f"{gpu.name or gpu.uuid} {'Healthy' if gpu.is_healthy else 'Unhealthy'}")


def _plain(gpu: ClearedGpu) -> dict[str, Any]:
    return {
        "gpu": gpu.name,
        "uuid": gpu.uuid,
        "pci": None if gpu.pci is None else str(gpu.pci),
        "faults": [_fault(fault) for fault in gpu.faults],
        "left": [_fault(fault) for fault in gpu.left],
        "healthy": gpu.is_healthy,
    }


def _fault(fault: SaidFault) -> dict[str, str]:
    return {"reason": fault.reason, "class": fault.kind.value, "said": fault.said}
