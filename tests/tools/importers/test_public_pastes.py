"""Topologies as others pasted them."""

from pathlib import Path

import pytest

from nodetopo.tools.importers.nccl_xml import parse_nccl_xml
from nodetopo.tools.importers.topo_m import parse_topo_m


@pytest.mark.parametrize(
    "name",
    [
        "t06-nccl820-a100-10mlx-fused.txt",
        "t12-deepep60-topo-mp.txt",
        "t15-dranet-gb300-mdtable.md",
        "t23-two-nodes-one-paste.txt",
        "t24-pdsh-prefix.txt",
        "t25-kubectl-logs-timestamps.txt",
        "t26-kubectl-logs-prefix.txt",
        "t29-cut-in-last-nv-cell-with-newline.txt",
    ],
)
def test_a_paste_has_its_gpus(field: Path, name: str) -> None:
    text = (field / "topo" / name).read_text("utf-8")
    found = parse_topo_m(text)
    assert len(found.gpus) == (4 if "GPU7" not in text else 8)


@pytest.mark.parametrize("name", ["nccl1125-fenced.md", "nccltests256-prompt.txt"])
def test_a_paste_of_nccls_xml_is_read(field: Path, name: str) -> None:
    assert parse_nccl_xml((field / "nccl-xml" / name).read_text("utf-8")).gpus
