"""Every reader names the form of a file that is for another, and the command that reads it."""

from pathlib import Path

import pytest

from nodetopo.formats.signatures import Reader
from tests.cli.conftest import Cli
from tests.formats.forms import BYTES, EXAMPLES

HERE = ("--machine", "h200-nvl-4")
NODES = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {nvidia.com/gpu.count: "8"}}
"""

COMMANDS = {
    "snapshot": (Reader.SNAPSHOT, ("topo", "matrix", "--snapshot", "-")),
    "node-snapshot": (Reader.SNAPSHOT, ("doctor", "--nodes", "NODES", "--node-snapshot", "-")),
    "topo-m": (Reader.TOPO_M, ("topo", "matrix", "--topo-m", "-")),
    "nccl-xml": (Reader.NCCL_XML, ("topo", "tree", "--nccl-xml", "-")),
    "check": (Reader.LOG, ("nccl", "check", "-", *HERE)),
    "admit": (Reader.MANIFEST, ("admit", "--manifest", "-", *HERE)),
    "audit": (Reader.MANIFEST, ("audit", "--manifest", "-", *HERE)),
    "doctor": (Reader.NODES, ("doctor", "--nodes", "-")),
    "export": (Reader.NODES, ("export", "--for", "kueue", "--nodes", "-")),
    "objects": (Reader.OBJECTS, ("doctor", "--nodes", "NODES", "--objects", "-")),
    "slices": (Reader.SLICES, ("explain-claim", "--slices", "-", "--claim", "NODES")),
    "claim": (Reader.CLAIMS, ("explain-claim", "--slices", "EMPTY", "--claim", "-")),
    "migrate": (Reader.MIGRATE, ("migrate", "-")),
    "table": (Reader.TABLE, ("allocate", "--size", "2", "--bandwidth-table", "-", *HERE)),
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return the words of commands that stand for files, with the files' names."""
    texts = {"NODES": NODES, "EMPTY": '{"kind": "List", "items": []}'}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name: str(tmp_path / name) for name in texts}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_names_every_other_form_and_its_command(
    cli: Cli, command: str, files: dict[str, str]
) -> None:
    reader, words = COMMANDS[command]
    unnamed = {}
    for name, example in EXAMPLES.items():
        if reader in example.readers:
            continue
        done = cli(*(files.get(word, word) for word in words), stdin=example.text)
        said = done.err or done.out
        is_named = example.what in said and example.cure in said
        if not is_named or done.code not in (2, 3) or (done.code == 2) != bool(done.err):
            unnamed[name] = (done.code, said[:300])
    assert unnamed == {}


@pytest.mark.parametrize("name", BYTES)
def test_a_file_that_is_no_text_is_named(cli: Cli, name: str, tmp_path: Path) -> None:
    content, what, cure = BYTES[name]
    file = tmp_path / "file"
    file.write_bytes(content)
    for arguments in (("topo", "matrix", "--topo-m"), ("nccl", "check", *HERE)):
        done = cli(*arguments, str(file))
        assert (done.code, f"{file}: this is {what} — " in done.err) == (2, True), done.err
        assert cure in done.err


@pytest.mark.parametrize(
    "case",
    [
        ("topo/t12-deepep60-topo-mp.txt", "check", "`nvidia-smi topo -m`"),
        ("topo/t24-pdsh-prefix.txt", "nccl-xml", "`nvidia-smi topo -m`"),
        ("topo/t15-dranet-gb300-mdtable.md", "snapshot", "`nvidia-smi topo -m`"),
        ("nccl-check/e-kubectl-ts.txt", "topo-m", "a log of nccl-tests"),
        ("nccl-check/e-ansi.txt", "admit", "a log of nccl-tests"),
        ("nccl-check/deepops-roce-1.txt", "doctor", "a log of nccl-tests"),
        ("nccl-check/g-nvbw-kubectl-ts.txt", "export", "a log of nvbandwidth"),
        ("nccl-check/g-perftest-pdsh.txt", "migrate", "a log of perftest"),
        ("nccl-check/rtx6k-p2p-0.txt", "snapshot", "a log of p2pBandwidthLatencyTest"),
        ("nccl-xml/nccl1125-fenced.md", "topo-m", "an NCCL topology"),
        ("nccl-xml/nccltests256-prompt.txt", "check", "an NCCL topology"),
        ("slices/azure_aks_examples_gb300__combined.yaml", "check", "a ResourceSlice"),
        ("admit/keys-twice.yaml", "check", "of Kubernetes"),
        ("admit/pytorchjob-master-worker-8gpu.yaml", "topo-m", "a manifest of Kubernetes"),
        ("migrate/mig-parted.yaml", "table", "a configuration of an NVIDIA program"),
        ("migrate/gpucluster.yaml", "snapshot", "a manifest of Kubernetes"),
    ],
)
def test_files_of_others_are_named(cli: Cli, field: Path, case: tuple[str, str, str]) -> None:
    name, command, what = case
    done = cli(*COMMANDS[command][1], stdin=(field / name).read_text("utf-8"))
    assert (done.code, what in done.err) == (2, True), done.err
