"""Recognises a document by its keys, and a container's program by its command and image."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

import yaml

from nodetopo.formats.document import Value
from nodetopo.kernel.settings.nvidia import file as nvidia_file
from nodetopo.tools.migrate import charts
from nodetopo.tools.migrate.charts import Table
from nodetopo.tools.migrate.nodes import below, items_of, text_of
from nodetopo.tools.migrate.nvidia import PLUGIN

OURS = "nodetopo"
"""Our own program, as a container or as a section of NVIDIA's file."""


class Form(StrEnum):
    """The forms of a document without ``kind``."""

    PLUGIN_CONFIG = "plugin-config"
    PLUGIN_VALUES = "plugin-values"
    OPERATOR_VALUES = "operator-values"
    NFD_VALUES = "nfd-values"
    NFD_WORKER = "nfd-worker"
    RDMA_CONFIG = "rdma-config"


TABLES: Mapping[Form, tuple[str, Table]] = {
    Form.PLUGIN_VALUES: (PLUGIN, charts.PLUGIN_VALUES),
    Form.OPERATOR_VALUES: (charts.OPERATOR, charts.OPERATOR_VALUES),
    Form.NFD_VALUES: (charts.NFD, charts.NFD_VALUES),
    Form.NFD_WORKER: (charts.NFD, charts.NFD_WORKER),
    Form.RDMA_CONFIG: (charts.RDMA, charts.RDMA_CONFIG),
}
SUBCHARTS = {"nfd": Form.PLUGIN_VALUES, "node-feature-discovery": Form.OPERATOR_VALUES}
"""Keys above NFD's values, in the values of other charts."""


def recognised(root: Value, *, is_values: bool = True) -> Form | None:
    """Return the form of *root* by its keys; ``None`` if unknown.

    Args:
        is_values: whether it can be the values of a chart.
    """
    top = {word.lower() for word in root.entries()}
    if top & {"version", "flags", "sharing", "imex"} and nvidia_file.is_nvidias(root):
        return Form.PLUGIN_CONFIG
    if "configlist" in top:
        return Form.RDMA_CONFIG
    if top & {"core", "sources"}:
        return Form.NFD_WORKER
    if not is_values:
        return None
    scores = {
        form: sum(_is_known(path, TABLES[form][1], form) for path in _paths(root, 3))
        for form in (Form.PLUGIN_VALUES, Form.OPERATOR_VALUES, Form.NFD_VALUES)
    }
    best = max(scores, key=lambda form: scores[form])
    return best if scores[best] else None


def _paths(value: Value, depth: int, above: str = "") -> Iterator[str]:
    if depth == 0 or not isinstance(value.node, yaml.MappingNode):
        return
    for word, inner in value.entries().items():
        path = f"{above}.{word}" if above else word
        yield path
        yield from _paths(inner, depth - 1, path)


def _is_known(path: str, table: Table, form: Form) -> bool:
    is_subchart = SUBCHARTS.get(path) is form
    return is_subchart or path in table or any(name.startswith(f"{path}.") for name in table)


def siblings_of(table: Table, path: str) -> tuple[str, ...]:
    """Return the keys that *table* has right below *path*."""
    prefix = f"{path}." if path else ""
    paths = (name.removeprefix(prefix) for name in table if name.startswith(prefix))
    return tuple(dict.fromkeys(re.split(r"[.\[]", name)[0] for name in paths))


def program_of(container: Value) -> str:
    """Return whose program a container runs, by its command, its name and its image."""
    command = next(iter(items_of(below(container, "command"))), None)
    image = re.split("[@:]", text_of(below(container, "image")).rpartition("/")[2])[0]
    words = (text_of(command).rpartition("/")[2], text_of(below(container, "name")), image)
    for word in words:
        if word == OURS:
            return OURS
        for beginning, program in charts.PROGRAMS:
            if word.startswith(beginning):
                return program
    return charts.OTHER
