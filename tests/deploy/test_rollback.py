"""State of a newer release: what this one makes of it, as docs/operate/install.md says."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodetopo.components.dra.driver.claims_file import ClaimsFile, PreparedClaim, PreparedDevice
from nodetopo.components.gpus.health.state import Fault, GpuRecord, Heal, HealthState
from nodetopo.components.gpus.state_files import GpuCount, GpuCountFile, HealthFile, KnownGpus
from nodetopo.components.rdma.composite import SavedPairs, pairs_file
from nodetopo.components.rdma.health.monitor import hcas_file
from nodetopo.components.rdma.health.saved import SavedHcas
from nodetopo.errors import UnreadableError
from nodetopo.model.codec import decode
from nodetopo.model.gpu_health import HealthClass
from nodetopo.rdma.identity import KnownHca

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "install.md"
MACHINES = Path(__file__).parents[2] / "agent" / "nodetopo" / "machines"
BOOT = "0b5f3d0e-boot"

FAULT = Fault(
    reason="Xid79",
    said="it fell off the bus",
    kind=HealthClass.REBOOT,
    heal=Heal.BOOT,
    first=1.0,
    last=1.0,
)
CLAIM = PreparedClaim(
    uid="u",
    namespace="n",
    name="c",
    devices=(
        PreparedDevice(
            request="r", pool="node", device="gpu-0", uuids=("GPU-0",), gpus=("GPU-0",), cdi=("a",)
        ),
    ),
)

MACHINE = decode((MACHINES / "dgx-h100.json").read_text("utf-8")).snapshot
HCA = KnownHca(key="0000:17:00.0", hca=(MACHINE.hcas or ())[0])


def write_health(path: Path) -> None:
    HealthFile(path).save(HealthState(gpus={"GPU-0": GpuRecord(faults=(FAULT,))}))


def read_health(path: Path) -> object:
    state = HealthFile(path).load()
    return None if state is None else state.gpus


def write_claims(path: Path) -> None:
    file = ClaimsFile(path, "node")
    file.news()
    file.write({"u": CLAIM})


FILES: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "health.json": (write_health, read_health),
    "gpus.json": (
        lambda path: KnownGpus(path, BOOT).save(MACHINE.gpus),
        lambda path: KnownGpus(path, BOOT).load() or None,
    ),
    "hcas.json": (
        lambda path: hcas_file(path, BOOT).save(SavedHcas(known=(HCA,))),
        lambda path: hcas_file(path, BOOT).load().content,
    ),
    "pairs.json": (
        lambda path: pairs_file(path, BOOT).save(SavedPairs(hcas={"GPU-0": HCA.key})),
        lambda path: pairs_file(path, BOOT).load().content,
    ),
    "gpu-count.json": (
        lambda path: GpuCountFile(path).most(8, "DGX"),
        lambda path: GpuCountFile(path).load(),
    ),
    "claims.json": (write_claims, lambda path: ClaimsFile(path, "node").news()),
}
"""How each file is written and read; what is read is ``None`` where the file counts for nothing."""


NAMED = {"counters", "gpus", "hcas", "records"}
"""Objects whose keys are names, not fields."""


def newer_fields(value: Any, name: str = "") -> Any:
    """Return a document with a field in each of its objects that no release has yet."""
    if isinstance(value, dict):
        added = {} if name in NAMED else {"added_later": {"a": [1]}}
        return {**{key: newer_fields(one, key) for key, one in value.items()}, **added}
    return [newer_fields(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", FILES)
def test_fields_of_a_newer_release_are_ignored_and_the_rest_is_kept(
    name: str, tmp_path: Path
) -> None:
    write, read = FILES[name]
    path = tmp_path / name
    write(path)
    before = read(path)
    assert before is not None
    path.write_text(json.dumps(newer_fields(json.loads(path.read_text("utf-8")))), "utf-8")
    assert read(path) == before


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_newer_schema_is_unknown_and_stays(name: str, tmp_path: Path) -> None:
    write, read = FILES[name]
    path = tmp_path / name
    write(path)
    document = json.loads(path.read_text("utf-8"))
    assert document["schema"].endswith("/v1")
    document["schema"] = document["schema"].removesuffix("1") + "2"
    text = json.dumps(document)
    path.write_text(text, "utf-8")
    assert read(path) in (None, GpuCount(gpus=0, is_certain=False))
    with suppress(UnreadableError):
        write(path)
    assert path.read_text("utf-8") == text
    assert not path.with_name(f"{name}.bad").exists()


def test_the_page_has_a_row_for_every_file() -> None:
    section = PAGE.read_text("utf-8").partition("\n## Roll back\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w.-]+)` \|", section, re.MULTILINE)
    assert sorted(rows) == sorted(FILES)
