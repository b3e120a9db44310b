"""``kubectl nodetopo``: a command in the agent's pod of a node, or one about the whole cluster.

``kubectl`` runs a program called ``kubectl-nodetopo`` on PATH for ``kubectl nodetopo``, and
``kubectl_complete-nodetopo`` to complete its words
(https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/).
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from nodetopo.cli.flags.support import DEFAULT_NAME
from nodetopo.cli.kubeconfig import usual_kubeconfig
from nodetopo.cli.main import COMMANDS, COULD_NOT_TELL, prepare_streams
from nodetopo.cli.main import main as run_here
from nodetopo.cli.main import parser as parser_of
from nodetopo.cli.output import note, say
from nodetopo.cli.words import offered, options_of
from nodetopo.errors import AgentError, InputError, UnreadableError
from nodetopo.kubeapi.client import Api
from nodetopo.kubeapi.lists import list_metadata

SELECTOR = "app.kubernetes.io/name=nodetopo"
"""The label of the agent's pods in ``deploy/``."""

CONTAINER = "nodetopo"
"""The agent's container there."""

OF_CLUSTER = ("doctor", "export", "explain-claim", "cleanup")
"""Commands about all Nodes, which run here, with the caller's own rights."""

HERE = (*OF_CLUSTER, "explain", "migrate", "simulate", "version")
"""Commands that need no node."""

_NEVER = ("run", "completion")
"""Commands that make no sense in the pod of a running daemon."""

_READS = ("--manifest", "--snapshot", "--topo-m", "--nccl-xml", "--log")
"""Flags whose file is on this machine: it becomes the standard input of the command."""

_LOG = ["nccl", "check"]
"""The command whose argument is such a file."""

_WRITES = ("capture", "support")
"""Commands whose ``-o`` names a file, which is written on this machine."""

_VARIABLE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")
"""How a pod's arguments refer to its variables
(https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/)."""

_USAGE = f"""\
usage: kubectl nodetopo [--context NAME] [--kubeconfig FILE] [-n NAMESPACE] NODE COMMAND …
       kubectl nodetopo {"|".join(HERE)} …

Runs `nodetopo COMMAND …` in the agent's pod on NODE, with the daemon's view of the host, by
`kubectl exec`; or a command about the cluster on this machine.

  kubectl nodetopo gpu-17 health               check the hardware of a node
  kubectl nodetopo gpu-17 topo matrix          its topology
  kubectl nodetopo gpu-17 admit --manifest pod.yaml   would its kubelet admit this pod?
  kubectl nodetopo gpu-17 support              a redacted archive, written on this machine
  kubectl nodetopo doctor                      check the cluster's labels

Files of --manifest, --snapshot, --topo-m, --nccl-xml and --log, the log of `nccl check`, and -o of
capture and support, are those of this machine. `kubectl nodetopo NODE COMMAND --help` lists the
options of a command. The exit status is that of the command; 1 may also be kubectl's own.

  --context NAME       the context of the kubeconfig
  --kubeconfig FILE    how to reach the API server; default as kubectl's
  -n, --namespace NAME look for the agent's pods here only, where the account may not list all
"""


class _Call(Struct):
    """The options before the command."""

    context: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None
    words: list[str] = field(default_factory=list)

    @property
    def flags(self) -> list[str]:
        """The flags that reach the same cluster with ``kubectl``."""
        given = {"--kubeconfig": self.kubeconfig, "--context": self.context}
        return [f"{flag}={value}" for flag, value in given.items() if value is not None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; where it is one of a node, ``kubectl`` takes the place of this process."""
    prepare_streams()
    try:
        return _run(_parsed(sys.argv[1:] if argv is None else argv))
    except AgentError as error:
        note("error", str(error))
        return 2 if isinstance(error, InputError) else COULD_NOT_TELL


def complete(argv: Sequence[str] | None = None) -> int:
    """Print the words that can follow and a directive, in ``kubectl``'s format; 0.

    The directive 4 excludes files from completion, 0 includes them (cobra's
    ``ShellCompDirective``).
    """
    *before, current = (sys.argv[1:] if argv is None else argv) or [""]
    words, directive = [], 4
    with suppress(AgentError):  # completion never complains
        call = _parsed(before, is_whole=False)
        if not call.words:
            words = [*HERE, *(_nodes(call) if not current.startswith("-") else ())]
            words += ["--context", "--kubeconfig", "--namespace"]
        else:
            command = call.words if call.words[0] in HERE else call.words[1:]
            found = offered(parser_of(), command)
            words, directive = (found, 4) if found is not None else ([], 0)
            if not command:
                words = [word for word in words if word not in _NEVER]
    say("".join(f"{word}\n" for word in words if word.startswith(current)) + f":{directive}\n")
    return 0


def _parsed(argv: Sequence[str], *, is_whole: bool = True) -> _Call:
    """Return the parsed *argv*; without a word, unless it is part of a line, it asks for help."""
    call, rest = _Call(), list(argv)
    names = {
        "--context": "context",
        "--kubeconfig": "kubeconfig",
        "--namespace": "namespace",
        "-n": "namespace",
    }
    while rest and rest[0].startswith("-"):
        flag, equals, value = rest.pop(0).partition("=")
        if flag in ("-h", "--help"):
            call.words = ["--help"]
            return call
        if flag not in names:
            raise InputError(f"unknown argument: {flag!r}", "see `kubectl nodetopo --help`")
        if not equals and not rest:
            raise InputError(f"{flag} needs a value", "see `kubectl nodetopo --help`")
        setattr(call, names[flag], value if equals else rest.pop(0))
    call.words = rest or (["--help"] if is_whole else [])
    return call


def _run(call: _Call) -> int:
    first, *rest = call.words
    if first == "--help":
        say(_USAGE)
        return 0
    if first in HERE:
        return _run_here(call, first, rest)
    known = [command.name for command in COMMANDS if command.name not in _NEVER]
    if not rest or rest[0] not in known:
        what = f"{rest[0]!r} is no command for a node" if rest else "no command is named"
        raise InputError(what, f"commands are: {', '.join(known)}")
    if {"-h", "--help", "--help-all"} & set(rest):
        return run_here(rest)
    _replace_by_kubectl(call, first, rest)
    raise AssertionError("unreachable: exec returns by an error only")


def _run_here(call: _Call, command: str, rest: Sequence[str]) -> int:
    if call.context is not None:
        cure = "switch with `kubectl config use-context`, or name a file with --kubeconfig"
        raise InputError(f"`{command}` uses the current context", cure)
    flags = []
    if command in OF_CLUSTER and call.kubeconfig is not None:
        flags = [f"--kubeconfig={call.kubeconfig}"]
    return run_here([command, *rest, *flags])


def _replace_by_kubectl(call: _Call, node: str, words: Sequence[str]) -> None:
    """Run *words* in the agent's pod on *node*."""
    sent, source = _with_input(words)
    sent, target = _with_output(sent)
    pod = _agent_pod(call, node)
    arguments = [*sent, *_daemon_flags(pod, sent)]
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    reads_input = source is not None or "-" in sent
    command = ["kubectl", *call.flags, "exec", "--quiet"]
    if is_terminal and not reads_input and target is None:
        command += ["--stdin", "--tty"]
    elif reads_input:
        command.append("--stdin")
    metadata = pod["metadata"]
    command += [f"--namespace={metadata['namespace']}", str(metadata["name"])]
    command += [f"--container={CONTAINER}", "--", "nodetopo", *arguments]
    try:
        if source is not None:
            os.dup2(os.open(source, os.O_RDONLY), 0)
        if target is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(target, flags, 0o600), 1)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}", "check the path") from None
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        cause = f"cannot run kubectl: {error.strerror}"
        raise UnreadableError(cause, "install kubectl, or add it to PATH") from None


def _with_input(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Return *words* with ``-`` for a file on this machine, and that file."""
    sent, files, takes = list[str](), list[str](), False
    log = _log_in(words)
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if takes or at == log:
            files.append(word)
            sent.append("-")
        elif flag in _READS and equals:
            files.append(value)
            sent.append(f"{flag}=-")
        else:
            sent.append(word)
        takes = not takes and at != log and word in _READS
    named = [file for file in files if file != "-"]
    if len(files) > 1:
        raise InputError("only one file can be sent to the pod", "save one of them in the pod")
    return sent, named[0] if named else None


def _log_in(words: Sequence[str]) -> int | None:
    """Return the place in *words* of the log that ``nccl check`` is to read."""
    if list(words[:2]) != _LOG:
        return None
    parsed = parser_of(words[0]).parse_args(words)
    if parsed.save is not None:
        cure = "take the node with `capture`, and run `nodetopo nccl check --snapshot` here"
        raise InputError("--save writes a file in the pod", cure)
    place: int = words.index(parsed.file, 2)
    return place


def _with_output(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Return *words* that write to standard output, and the file on this machine that gets it."""
    sent, target = list(words), None
    if sent[0] not in _WRITES:
        return sent, None
    if "--raw" in sent:
        raise InputError("--raw writes a directory", "run it in the pod, or use `support`")
    for at, word in enumerate(sent):
        flag, equals, value = word.partition("=")
        if flag in ("-o", "--output"):
            target = value if equals else "".join(sent[at + 1 : at + 2])
            del sent[at : at + (1 if equals else 2)]
            break
    else:
        target = DEFAULT_NAME if sent[0] == "support" else None
    if not target:
        raise InputError(f"{sent[0]} needs a file", "give -o FILE, or -o - for standard output")
    return [*sent, "--output=-"], None if target == "-" else target


def _connected(call: _Call) -> Callable[[], Api]:
    path = usual_kubeconfig() if call.kubeconfig is None else Path(call.kubeconfig)
    api = Api(path, call.context)
    return lambda: api


def _agent_pod(call: _Call, node: str) -> Mapping[str, Any]:
    """Return the agent's pod on *node*, the oldest of several."""
    connect = _connected(call)
    where = "" if call.namespace is None else f"/namespaces/{call.namespace}"
    query = {
        "labelSelector": SELECTOR,
        "fieldSelector": f"spec.nodeName={node},status.phase=Running",
    }
    agent_pods = [
        metadata
        for metadata in list_metadata(connect, f"/api/v1{where}/pods", query)
        if any(owner.get("kind") == "DaemonSet" for owner in metadata.get("ownerReferences") or ())
        and not metadata.get("deletionTimestamp")
    ]
    if not agent_pods:
        cure = f"see where it runs: kubectl get pods -A -o wide -l {SELECTOR}"
        raise UnreadableError(f"no agent runs on node {node!r}", cure)
    first = min(agent_pods, key=lambda metadata: str(metadata.get("creationTimestamp")))
    path = f"/api/v1/namespaces/{first['namespace']}/pods/{first['name']}"
    answer = connect().get(path, {})
    if answer.status != 200:  # the command still runs, with the defaults of its flags
        return {"metadata": first}
    return {**answer.body, "metadata": first}


def _daemon_flags(pod: Mapping[str, Any], words: Sequence[str]) -> Iterator[str]:
    """Yield the flags of the daemon in *pod* that the command *words* accepts too.

    These are mainly roots of the host: the command must see the same files as the daemon.
    """
    spec = pod.get("spec") or {}
    containers = [
        container
        for container in spec.get("containers") or ()
        if container.get("name") == CONTAINER
    ]
    if not containers:
        return
    variables = dict(_variables(pod, containers[0]))
    accepted = options_of(parser_of(words[0]), words)
    given = {word.partition("=")[0] for word in words}
    arguments = [str(argument) for argument in containers[0].get("args") or ()]
    for at, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag not in accepted or flag in given or flag in ("--config", "--output"):
            continue
        following = arguments[at + 1 : at + 2]
        if not equals and (not following or following[0].startswith("-")):
            yield flag
            continue
        raw = value if equals else following[0]
        value = _VARIABLE.sub(lambda name: variables.get(name[1], name[0]), raw)
        yield f"{flag}={value}"


def _variables(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the variables of *container* that its arguments can refer to."""
    fields = {
        "spec.nodeName": (pod.get("spec") or {}).get("nodeName"),
        "status.podIP": (pod.get("status") or {}).get("podIP"),
        "status.hostIP": (pod.get("status") or {}).get("hostIP"),
        "metadata.name": pod["metadata"].get("name"),
        "metadata.namespace": pod["metadata"].get("namespace"),
    }
    for variable in container.get("env") or ():
        path = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        value = variable.get("value", fields.get(str(path)))
        if value is not None:
            yield str(variable.get("name")), str(value)


def _nodes(call: _Call) -> list[str]:
    """Return the names of the cluster's Nodes."""
    return [
        str(metadata.get("name"))
        for metadata in list_metadata(_connected(call), "/api/v1/nodes", {})
    ]
