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
from nodetopo.tools.migrate.owners import DRA_DRIVER, EFA, NETWORK_OPERATOR, OWNERS, Owner, is_hami

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


_VALUES = (Form.PLUGIN_VALUES, Form.OPERATOR_VALUES, Form.NFD_VALUES)
_COMMON = re.compile(
    "image|repository|pullPolicy|tag|version|imagePullPolicy|imagePullSecrets|(name|fullname|"
    "namespace|selectorLabels)Override|allowDefaultNamespace|namespace|resources|nodeSelector|"
    "tolerations|affinity|priorityClassName|updateStrategy|podAnnotations|annotations|labels|"
    "podSecurityContext|securityContext|serviceAccount|rbac|enabled|global|prometheus|"
    "featureGates|tls|env|args|config|name|operator|nfd|runtimeClassName|nvidiaDriverRoot"
)
"""Keys that say nothing of whose values they are: many charts have them."""

CHARTS: Mapping[str, Form | Owner] = {
    "nvidia-device-plugin": Form.PLUGIN_VALUES,
    "gpu-operator": Form.OPERATOR_VALUES,
    "node-feature-discovery": Form.NFD_VALUES,
    "network-operator": NETWORK_OPERATOR,
    "aws-efa-k8s-device-plugin": EFA,
    **dict.fromkeys(("dra-driver-nvidia-gpu", "nvidia-dra-driver-gpu"), DRA_DRIVER),
}
"""By the name of a chart, where an object says which one its values are for."""


def recognised(root: Value, *, is_values: bool = True) -> Form | Owner | None:
    """Return whose document *root* is, by keys that only one program has; ``None`` if unknown.

    Args:
        is_values: whether it can be the values of a chart.
    """
    top = {word.lower() for word in root.entries()}
    paths = tuple(_paths(root, 3))
    owner, theirs = _owner(paths)
    if top & {"version", "flags", "sharing", "imex"} and nvidia_file.is_nvidias(root):
        has_version_alone = not top & {"flags", "sharing", "imex"}
        return owner if owner is not None and has_version_alone else Form.PLUGIN_CONFIG
    if "configlist" in top:
        return Form.RDMA_CONFIG
    if top & {"core", "sources"}:
        return Form.NFD_WORKER
    if not is_values:
        return owner
    known = {path: {form for form in _VALUES if _is_known(path, form)} for path in paths}
    own = {form: sum(forms == {form} for forms in known.values()) for form in _VALUES}
    if owner is not None and theirs >= max(own.values()):
        return owner if theirs > max(own.values()) else None
    if not any(own.values()):  # then by keys that several have, and by NFD's below another chart's
        own = {form: sum(form in forms for forms in known.values()) for form in _VALUES}
        own = (
            own
            if any(own.values())
            else {form: sum(_is_below(path, form) for path in paths) for form in _VALUES}
        )
    best = [form for form in _VALUES if own[form] == max(own.values())]
    return best[0] if len(best) == 1 else None


def _owner(paths: tuple[str, ...]) -> tuple[Owner | None, int]:
    """Return the other program with the most keys of its own among *paths*, and their number."""
    scores = {owner: sum(path in owner.keys for path in paths) for owner in OWNERS}
    best = max(scores, key=lambda owner: scores[owner])
    return (best, scores[best]) if scores[best] else (None, 0)


def _paths(value: Value, depth: int, above: str = "") -> Iterator[str]:
    if depth == 0 or not isinstance(value.node, yaml.MappingNode):
        return
    for word, inner in value.entries().items():
        path = f"{above}.{word}" if above else word
        yield path
        yield from _paths(inner, depth - 1, path)


def _is_known(path: str, form: Form) -> bool:
    above, _, word = path.rpartition(".")
    if (above or word).split(".")[0] in SUBCHARTS or _COMMON.fullmatch(word):
        return False
    table = TABLES[form][1]
    return path in table or any(name.startswith(f"{path}.") for name in table)


def _is_below(path: str, form: Form) -> bool:
    """Return whether *path* is one of NFD's below the chart of *form*."""
    above, _, word = path.partition(".")
    parts = ("master", "worker", "topologyUpdater", "gc")
    return SUBCHARTS.get(above) is form and word in parts


def siblings_of(table: Table, path: str) -> tuple[str, ...]:
    """Return the keys that *table* has right below *path*."""
    prefix = f"{path}." if path else ""
    paths = (name.removeprefix(prefix) for name in table if name.startswith(prefix))
    return tuple(dict.fromkeys(re.split(r"[.\[]", name)[0] for name in paths))


def program_of(container: Value) -> str:
    """Return whose program a container runs, by its command, its name and its image."""
    if is_hami(container):  # its command is NVIDIA's
        return charts.OTHER
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
