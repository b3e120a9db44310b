"""How many files five walks enter, as a table: ``python -m tests.bench.walks [CHECKOUT]``.

A walk follows one fact through the package: a GPU to its labels, a rule to its metric, a setting
to its use, an HCA to the kubelet, a manifest to the kubelet's answer. Whoever changes such a fact
reads these files. A file counts where one of its functions is entered, in any thread and in the
NVML child, after preparations; neither imports nor what they call count, nor methods with names
like ``__init__``, nor generated code. Another checkout can be older than the package's present
layout; it needs its own tests, with which the walks are prepared.
"""

import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from inspect import CO_OPTIMIZED
from io import StringIO
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from msgspec.structs import replace

ROOT = Path(__file__).parents[2]

SHAPE = "h100x8-nvswitch-2numa-8cx7"

RULE = "GPU-006"

FAMILY = "checks"

CONFIG = "placement-policy: packed\n"

POOLS = """\
{"configList": [{"resourceName": "hcas", "rdmaHcaMax": 16,
                 "selectors": {"vendors": ["15b3"]}, "mode": "chosen"}]}
"""

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: fits, namespace: ml}
spec:
  containers:
  - name: work
    image: registry.example/train
    resources: {limits: {nvidia.com/gpu: 4, cpu: 4, memory: 8Gi}}
"""

_NOT_COUNTED = (f"{os.sep}pb{os.sep}", f"{os.sep}fake_kubelet.py")
"""Generated code, and what stands for another program."""


def entered(checkout: Path, walk: str) -> list[str]:
    """Return the files that *walk* enters in *checkout*, in the order of the first entry."""
    is_new = (checkout / "agent" / "nodetopo").is_dir()
    paths = [checkout / "agent", checkout] if is_new else [checkout]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, paths))}
    with tempfile.TemporaryDirectory(prefix="nodetopo-") as scratch:
        log = Path(scratch, "entered.log")
        log.touch()
        arguments = ["walk", str(checkout / "agent"), str(log), walk, scratch]
        subprocess.run(
            [sys.executable, "-P", __file__, *arguments], env=environment, cwd=scratch, check=True
        )
        return list(dict.fromkeys(log.read_text("utf-8").splitlines()))


def trace(root: str, log: str) -> None:
    """Append each file below *root* to *log* once one of its functions is entered."""
    thread, seen = threading.local(), set[str]()
    file = os.open(log, os.O_WRONLY | os.O_APPEND)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(root + os.sep):
            return
        importing = getattr(thread, "importing", 0)
        if code.co_name == "<module>":
            if frame.f_globals["__name__"] == "__main__":  # the NVML child, which runs in it
                return
            thread.importing = importing + (1 if event == "call" else -1)
        elif (
            not importing
            and code.co_flags & CO_OPTIMIZED  # not the body of a class
            and not code.co_name.startswith("__")
            and code.co_filename not in seen
            and not any(part in code.co_filename for part in _NOT_COUNTED)
        ):
            seen.add(code.co_filename)
            os.write(file, f"{code.co_filename.removeprefix(root + os.sep)}\n".encode())

    threading.setprofile(note)
    sys.setprofile(note)


class Walks:
    """The walks; each prepares, and then calls *begin*."""

    def __init__(self, scratch: Path, begin: Callable[[], None], *, is_new: bool) -> None:
        self._scratch = scratch
        self._begin = begin
        self._is_new = is_new
        self._nodes: Path = import_module("tests.deviceplugin.machines").NODES

    def labels(self) -> None:
        """GPU to label: from NVML, by its child, to the text of ``nodetopo labels``."""
        library = import_module("tests.fake_nvml.build").library(self._scratch)
        host = self._unpacked()
        roots = [f"--sysfs-root={host}/sys", f"--procfs-root={host}/proc", f"--host-root={host}"]
        main = self._ours("cli.main").main
        os.environ["NODETOPO_FAKE_NVML"] = str(self._nodes / SHAPE)
        self._begin()
        with _traced_children(self._scratch):
            main(["labels", f"--nvml-library={library}", *roots, "--node-name=node"])

    def rule(self) -> None:
        """Rule to metric: ``nodetopo audit``, the audit of the daemon, and the scrape."""
        file = self._nodes / SHAPE / "snapshot.json"
        snapshot, main = self._snapshot(), self._ours("cli.main").main
        scrape = self._new_scrape if self._is_new else self._old_scrape
        self._begin()
        main(["audit", "--only", RULE, f"--snapshot={file}"])
        catalogue = self._ours("components.audit.catalogue", "checks.catalogue")
        catalogue.AUDIT = tuple(each for each in catalogue.AUDIT if each.code == RULE)
        for family, reading in scrape(snapshot):
            if family.name == FAMILY:
                assert family.metric(reading).samples

    def setting(self) -> None:
        """Setting to use: from YAML to ``--print-config``, and to the choice of GPUs."""
        config = self._written("config.yaml", CONFIG)
        snapshot, main = self._snapshot(), self._ours("cli.main").main
        self._begin()
        main(["run", "--print-config", f"--config={config}", "--node-name=node"])
        reload = self._ours("kernel.settings.reload", "daemon.reload")
        sources = reload.Sources(read=lambda name: Path(name).read_text("utf-8"), file=str(config))
        settings = sources.resolved().settings
        table = self._ours("components.gpus.plan", "daemon.plugin_plan").load_table(settings)
        plugins = self._ours("components.gpus.plugins", "daemon.plugins")
        rules = plugins.PluginSet(settings, self._scratch, table).placement_rules(snapshot)
        assert rules.policy.value == "packed"

    def hca(self) -> None:
        """HCA to Allocate: from sysfs, and by the kubelet's calls through a socket."""
        pools = self._written("rdma.json", POOLS)
        sysfs, snapshot = self._unpacked() / "sys", self._snapshot()
        tests = "tests.components.gpus" if self._is_new else "tests.daemon"
        serving_node = import_module(f"{tests}.plugin_sets").serving_node
        rdma, pcie = self._ours("probes.sysfs.rdma"), self._ours("probes.sysfs.pcie")
        self._begin()
        assert rdma.read_rdma(sysfs, pcie.PciTree(sysfs)).hcas
        with serving_node(rdma_config=pools) as served:
            served.plugins.take(snapshot)
            assert served.listed("rdma/hcas") == {"rdma/hcas": 16}
            ids = served.kubelet.preferred(2, resource="rdma/hcas")
            assert served.kubelet.allocate(ids, "rdma/hcas").device_nodes

    def admit(self) -> None:
        """Manifest to ``nodetopo admit``."""
        manifest = self._written("pod.yaml", MANIFEST)
        snapshot, main = self._nodes / SHAPE / "snapshot.json", self._ours("cli.main").main
        self._begin()
        assert main(["admit", f"--manifest={manifest}", f"--snapshot={snapshot}"]) == 0

    def _new_scrape(self, snapshot: Any) -> Iterator[tuple[Any, Any]]:
        """Yield each family of the kernel and of the audit, with the reading that it shows."""
        kernel_of = import_module("tests.kernel.running").kernel_of
        kernel = kernel_of(self._scratch, snapshot, measure_pods=False)
        kernel.store.publish(snapshot)
        component = self._ours("components.audit.component").Audit(kernel)
        component.name = "audit"
        component.audit = self._audited(kernel.settings, kernel.store, component.overrides)
        kernel.running.append(component)
        http = self._ours("kernel.http.families")
        http.COMPONENTS = {component.name: "Audit"}
        readings = http.readings(kernel)
        return ((family, readings[name]) for name, family in http.families())

    def _old_scrape(self, snapshot: Any) -> Iterator[tuple[Any, Any]]:
        """Yield each family of a daemon that audits, and has nothing to offer."""
        settings = self._ours("config.settings").Settings(node_name="node", measure_pods=False)
        store = self._ours("store").SnapshotStore()
        store.publish(snapshot)
        overrides = self._ours("daemon.check_terms").OverridesFile(None)
        loops = self._ours("daemon.pod_loops").pod_loops(settings, store, overrides, expect=print)
        audit = self._audited(settings, store, overrides)
        machine = SimpleNamespace(nvml=self._ours("model.nvml_event").NvmlStatus)
        no_plugins: dict[str, Any] = {
            "served": (),
            "pools": (),
            "refusals": (),
            "strategies": (),
            "states": {},
        }
        components = self._ours("daemon.components").Components(
            settings=settings,
            target=SimpleNamespace(machine=machine),
            store=store,
            plugins=SimpleNamespace(
                **no_plugins, taken=None, hand_over=None, cdi_problem=None, served_by_dra=()
            ),
            overrides=overrides,
            pod_loops=replace(loops, audit=audit),
        )
        state = self._ours("daemon.status").Status(components).state()
        return ((family, state) for family in self._ours("publish.metrics.families").FAMILIES)

    def _audited(self, settings: Any, store: Any, overrides: Any) -> Any:
        loop = self._ours("components.audit.loop", "daemon.audit_loop")
        audit = loop.AuditLoop(settings, store, overrides, read=lambda snapshot: snapshot)
        audit.step()
        return audit

    def _ours(self, name: str, old: str | None = None) -> Any:
        """Import a module of the package, which an older layout has as *old*."""
        return import_module(f"nodetopo.{name}" if self._is_new else f"agent.{old or name}")

    def _snapshot(self) -> Any:
        return import_module("tests.deviceplugin.machines").node(SHAPE)

    def _unpacked(self) -> Path:
        host = self._scratch / "host"
        import_module("tests.compose.sysfs").unpack_whole(self._nodes / SHAPE, host)
        return host

    def _written(self, name: str, text: str) -> Path:
        path = self._scratch / name
        path.write_text(text, "utf-8")
        return path


@contextmanager
def _traced_children(scratch: Path) -> Iterator[None]:
    """Trace the processes that are started as this interpreter."""
    wrapper, python = scratch / "python", sys.executable
    arguments = " ".join([python, "-P", __file__, "child", *sys.argv[2:4]])
    wrapper.write_text(f'#!/bin/sh\nexec {arguments} "$@"\n')
    wrapper.chmod(0o755)
    sys.executable = str(wrapper)
    try:
        yield
    finally:
        sys.executable = python


WALKS: Mapping[str, Callable[[Walks], None]] = {
    "GPU to label": Walks.labels,
    "rule to metric": Walks.rule,
    "setting to use": Walks.setting,
    "HCA to Allocate": Walks.hca,
    "manifest to admit": Walks.admit,
}


def _run(kind: str, root: str, log: str, *rest: str) -> None:
    """Walk, in a process of its own, or be the NVML child of a walk."""
    if kind == "child":
        module = rest.index("-m") + 1
        sys.argv = list(rest[module:])
        trace(root, log)
        runpy.run_module(rest[module], run_name="__main__", alter_sys=True)
        return
    name, scratch = rest
    walks = Walks(Path(scratch), lambda: trace(root, log), is_new=Path(root, "nodetopo").is_dir())
    with redirect_stdout(StringIO()):
        WALKS[name](walks)


def table(checkouts: tuple[Path, ...]) -> str:
    """Return the table in Markdown: files, folders and lines of these files, by checkout."""
    names = ("this", "other")[: len(checkouts)]
    heads = [f"{name}: {what}" for name in names for what in ("files", "folders", "lines")]
    lines = [f"| walk | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for walk in WALKS:
        cells = [walk]
        for checkout in checkouts:
            files = [checkout / "agent" / name for name in entered(checkout, walk)]
            length = sum(file.read_text("utf-8").count("\n") for file in files)
            cells += [str(len(files)), str(len({file.parent for file in files})), str(length)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:2] in (["walk"], ["child"]):
        _run(*sys.argv[1:])
    else:
        sys.stdout.write(table((ROOT, *(Path(name).resolve() for name in sys.argv[1:]))))
