"""docs/reference/allocate.md says what the code does, as far as a program can tell."""

import re
from dataclasses import fields
from pathlib import Path

from nodetopo.deviceplugin.cdi import OWN_KIND
from nodetopo.deviceplugin.cdi_writer import CdiFile
from nodetopo.deviceplugin.driver_files import MPS, PROGRAMS
from nodetopo.deviceplugin.host_nodes import CONTROL_NODES, channel_node
from nodetopo.deviceplugin.response import IMEX_CHANNELS, NCCL_DIRECTORY, VISIBLE_DEVICES
from nodetopo.deviceplugin.settings import Feature, Strategy
from nodetopo.kernel.settings.declare import Settings
from nodetopo.nccl.container import FILE_NAME

PAGE = (Path(__file__).parents[2] / "docs/reference/allocate.md").read_text("utf-8")


def test_every_strategy_and_feature_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z-]+)`", PAGE, re.MULTILINE)
    answered = [word for word in Strategy if word is not Strategy.AUTO]  # which is in no answer
    assert rows == [*answered, *Feature]


def test_names_on_the_page_are_those_of_the_code() -> None:
    names = {
        *(OWN_KIND, CdiFile(Path(), OWN_KIND).path.name, FILE_NAME, NCCL_DIRECTORY, MPS),
        *(VISIBLE_DEVICES, IMEX_CHANNELS, channel_node(0)),
        *(f"-{name.partition('-')[2]}" for name in CONTROL_NODES[1:]),
        *(name for name in PROGRAMS if "mps" not in name),
    }
    assert {name for name in names if name not in PAGE} == set()


def test_settings_on_the_page_exist() -> None:
    known = {item.name.replace("_", "-") for item in fields(Settings)}
    settings = (
        *("device-list-strategy", "cdi-kind", "cdi-spec", "cdi-spec-dir", "cdi-hook"),
        *("cdi-annotation-prefix", "imex-channels", "imex-required", "driver-root", "dev-root"),
        *("host-root", "nccl-hints", "nccl-hints-dir"),
    )
    assert set(settings) <= known
    assert all(f"`{name}" in PAGE for name in settings)
