"""The message and service classes of gRPC, made from ``proto/``."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PROTO = _ROOT / "proto"
_WITHOUT_SERVICES = "probes"
"""``nodetopo.probes`` opens gRPC in one module only, so it gets messages and no service classes."""


def made() -> Mapping[Path, str]:
    """Return what the compiler makes.

    Raises:
        RuntimeError: it refuses a file.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory)
        for source in sorted(_PROTO.rglob("*.proto")):
            _compile(source, out)
        return {
            _ROOT / "agent" / path.relative_to(out): path.read_text("utf-8")
            for path in out.rglob("*")
            if path.is_file()
        }


def owned() -> Iterable[Path]:
    """Return the stored classes."""
    return (path for path in (_ROOT / "agent").rglob("pb/*_pb2*") if path.suffix in {".py", ".pyi"})


def _compile(source: Path, out: Path) -> None:
    kinds = ["python", "pyi"]
    if _WITHOUT_SERVICES not in source.parts:
        kinds.append("grpc_python")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(_PROTO)]
    command += [*(f"--{kind}_out={out}" for kind in kinds), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
