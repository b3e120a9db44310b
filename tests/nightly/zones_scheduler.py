"""The scheduler of scheduler-plugins v0.32.7 with NodeResourceTopologyMatch, on the lab's cluster.

Its cache of zones is on, which is where the fingerprint of pods counts: what it placed itself it
takes from every zone until an object says by its fingerprint that it knows of those pods.
"""

from pathlib import Path

import yaml

from tests.lab.go_program import GoPrograms
from tests.lab.processes import Processes, Program

NAME = "zones"
"""Of the profile; pods ask for it."""

_PLUGIN = "NodeResourceTopologyMatch"
_API = "kubescheduler.config.k8s.io/v1"
_PROGRAM = "sp-scheduler"

PROGRAMS = GoPrograms(
    shelf="nightly",
    title="scheduler-plugins v0.32.7",
    module=Path(__file__).parent / "go" / "scheduler-plugins",
    packages={_PROGRAM: "sigs.k8s.io/scheduler-plugins/cmd/scheduler"},
)


def start(kubeconfig: Path, processes: Processes, home: Path) -> Program:
    """Start the scheduler with files of its own in *home*."""
    config = home / "scheduler-plugins.yaml"
    config.write_text(yaml.safe_dump(_configuration(kubeconfig)), "utf-8")
    program = PROGRAMS.folder() / _PROGRAM
    return processes.start(_PROGRAM, [program, f"--config={config}", "--secure-port=0"])


def _configuration(kubeconfig: Path) -> dict[str, object]:
    arguments = {
        "apiVersion": _API,
        "kind": f"{_PLUGIN}Args",
        "scoringStrategy": {"type": "LeastAllocated"},
        "cacheResyncPeriodSeconds": 1,
    }
    profile = {
        "schedulerName": NAME,
        "plugins": {"multiPoint": {"enabled": [{"name": _PLUGIN}]}},
        "pluginConfig": [{"name": _PLUGIN, "args": arguments}],
    }
    return {
        "apiVersion": _API,
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [profile],
    }
