"""What commands cost, as a table: ``python -m tests.bench.cli_cost [CHECKOUT]``.

CPU time is user and system time of the whole process, with compiled modules as an installed
package has them. It depends on the machine and its load: the minimum says most. Another checkout
of the repository is measured alongside this one, run by run.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from msgspec import Struct, field

from tests.bench.checkouts import package_of

ROOT = Path(__file__).parents[2]

RUNS = 7

MACHINE = ("--machine", "dgx-h100")

MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: two-gpus}
spec:
  containers:
  - name: main
    image: registry.example/train
    resources: {limits: {nvidia.com/gpu: 2, cpu: 4, memory: 4Gi}}
"""

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("version",),
    ("--help",),
    ("completion", "bash"),
    ("topo", "matrix", *MACHINE),
    ("topo", "tree", *MACHINE),
    ("topo", "path", "GPU0", "GPU1", *MACHINE),
    ("nccl", "xml", *MACHINE),
    ("labels", *MACHINE),
    ("health", *MACHINE),
    ("allocate", "--size", "2", *MACHINE),
    ("admit", "--manifest", "pod.yaml", *MACHINE),
    ("run", "--help"),
)

_COUNT = (
    "import sys; from {package}.cli.main import main; main(sys.argv[1:]); "
    "sys.stderr.write(f'\\nmodules {{len(sys.modules)}}')"
)


class Cost(Struct, frozen=True, kw_only=True):
    """What one command costs in one checkout; *seconds* of CPU, one for each run."""

    modules: int
    seconds: list[float] = field(default_factory=list)


def costs(command: tuple[str, ...], checkouts: tuple[Path, ...], runs: int) -> list[Cost]:
    """Return the cost of *command* in each of *checkouts*, which take turns."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pod.yaml").write_text(MANIFEST, encoding="utf-8")
        packages = [package_of(checkout) for checkout in checkouts]
        environments = [
            {"PATH": os.environ["PATH"], "PYTHONPATH": str(source)}
            | {"PYTHONPYCACHEPREFIX": f"{folder}/compiled{number}"}
            for number, (_, source) in enumerate(packages)
        ]
        measured = []
        for (package, _), environment in zip(packages, environments, strict=True):
            # This run also compiles the modules.
            counted = _run(("-c", _COUNT.format(package=package), *command), folder, environment)
            measured.append(Cost(modules=int(counted.split()[-1])))
        for _ in range(runs):
            for cost, (package, _), environment in zip(
                measured, packages, environments, strict=True
            ):
                before = os.times()
                _run(("-m", package, *command), folder, environment)
                after = os.times()
                user = after.children_user - before.children_user
                cost.seconds.append(user + after.children_system - before.children_system)
    return measured


def _run(arguments: tuple[str, ...], folder: str, environment: Mapping[str, str]) -> str:
    """Run Python in *folder* and return its standard error; a check that fails is no problem."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stderr


def table(checkouts: tuple[Path, ...], runs: int = RUNS) -> str:
    """Return the table in Markdown: s of CPU (minimum, median) and modules by checkout."""
    names = ("this",) if len(checkouts) == 1 else ("this", "other")
    heads = [f"{name}: {what}" for name in names for what in ("minimum", "median", "modules")]
    lines = [f"| command | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for command in COMMANDS:
        cells = [f"`{' '.join(word for word in command if word not in MACHINE)}`"]
        for cost in costs(command, checkouts, runs):
            cells += [f"{min(cost.seconds):.2f}", f"{median(cost.seconds):.2f}"]
            cells.append(str(cost.modules))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table((ROOT, *(Path(name).resolve() for name in sys.argv[1:]))))
