"""Reads files that are tables of keys: values of charts, and configuration of NFD and RDMA."""

from collections.abc import Mapping

import yaml

from nodetopo.formats.document import Value
from nodetopo.tools.migrate import charts
from nodetopo.tools.migrate.charts import Entry, Inner, Rule
from nodetopo.tools.migrate.containers import read_arguments, read_environment
from nodetopo.tools.migrate.embedded import embedded
from nodetopo.tools.migrate.findings import Verdict
from nodetopo.tools.migrate.forms import SUBCHARTS, TABLES, Form, siblings_of
from nodetopo.tools.migrate.ledger import NOTHING, Ledger, maybe, setting_of
from nodetopo.tools.migrate.nodes import is_empty, items_of, key_lines, shown_value, text_of
from nodetopo.tools.migrate.nvidia import PLUGIN, Setting
from nodetopo.tools.migrate.plugin_file import config_name, read_plugin_file


def read_table(ledger: Ledger, value: Value, form: Form, about: str = "") -> None:
    """Judge each key of *value*, a document of *form* with the name *about*."""
    _TableReader(ledger, form).read(value, "", about)


class _TableReader:
    """Goes through one document of one form."""

    def __init__(self, ledger: Ledger, form: Form) -> None:
        self._ledger = ledger
        self._form = form
        self._program, self._table = TABLES[form]

    def read(self, value: Value, path: str, about: str) -> None:
        """Judge each key of *value*, at *path* of the table, with the name *about*."""
        if value.is_list():
            for index, item in enumerate(value.items()):
                self.read(item, f"{path}[]", f"{about}[{index}]")
            return
        if not isinstance(value.node, yaml.MappingNode):
            verdict = Verdict.IGNORED if value.is_null() else Verdict.UNKNOWN
            means = NOTHING if value.is_null() else "a mapping is expected here"
            self._ledger.add(value, about, verdict, means, program=self._program)
            return
        lines = key_lines(value)
        scope: list[Setting] = []
        entries = value.entries()
        self._ledger.saw(self._program, value.file)
        self._ledger.repeated(value, self._program)
        for word, inner in entries.items():
            inner_path = f"{path}.{word}" if path else word
            inner_about = f"{about}.{word}" if about else word
            line = lines.get(word) or self._ledger.line_of(inner)
            entry = self._table.get(inner_path)
            if not path and SUBCHARTS.get(word) is self._form and word not in self._table:
                read_table(self._ledger, inner, Form.NFD_VALUES, inner_about)
            elif entry is not None:
                scope += self._entry(inner, entry, inner_about, line, entries)
            elif self._is_section(inner_path):
                self.read(inner, inner_path, inner_about)
            elif (why := REMOVED.get(self._form, {}).get(inner_path)) is not None:
                means = f"a removed key, which sets nothing in newer releases: {why}"
                self._add(inner, inner_about, Verdict.IGNORED, means, line)
            else:
                means = f"no key of {self._program}{maybe(word, siblings_of(self._table, path))}"
                # Go's reader and rdma-config ignore unknown keys alike.
                is_ignored = self._form is Form.RDMA_CONFIG
                verdict = Verdict.IGNORED if is_ignored else Verdict.UNKNOWN
                self._add(inner, inner_about, verdict, means, line)
        self._ledger.settings_of_place(scope)

    def _is_section(self, path: str) -> bool:
        return any(known.startswith((f"{path}.", f"{path}[")) for known in self._table)

    def _entry(
        self, value: Value, entry: Entry, about: str, line: int, beside: Mapping[str, Value]
    ) -> tuple[Setting, ...]:
        """Judge the value of a known key; return the setting of NVIDIA's that it is, if it is."""
        if is_empty(value) and not (isinstance(entry, str) and not value.is_null()):
            self._add(value, about, Verdict.IGNORED, NOTHING, line)
        elif entry is Inner.CONFIGS:
            self._configs(value, about)
        elif entry is Inner.ENVIRONMENT:
            program = charts.GFD if about.startswith("gfd") else PLUGIN
            read_environment(self._ledger, value, program)
        elif entry is Inner.ARGUMENTS:
            read_arguments(self._ledger, items_of(value), PLUGIN)
        elif isinstance(entry, Rule):
            self._ledger.by_rule(
                value, entry, program=self._program, about=about, line=line, beside=beside
            )
        else:
            assert isinstance(entry, str)
            text = ",".join(map(text_of, items_of(value))) if value.is_list() else text_of(value)
            return (
                setting_of(
                    place=(value.file, line),
                    program=self._program,
                    written=f"{about}: {shown_value(value)}",
                    name=self._ledger.names[entry],
                    text=text,
                    variable=entry,
                ),
            )
        return ()

    def _configs(self, value: Value, about: str) -> None:
        """Judge configurations by name, each a text of ``version: v1``."""
        for word, config in value.entries().items():
            inner = embedded(config)
            if inner is None:
                means = "no YAML of one document: NVIDIA's program refuses it, too"
                self._ledger.add(
                    config, f"{about}.{word}", Verdict.NOT_SUPPORTED, means, program=PLUGIN
                )
                continue
            with self._ledger.inside(config):
                read_plugin_file(self._ledger, inner, config_name(word))

    def _add(self, value: Value, written: str, verdict: Verdict, means: str, line: int) -> None:
        self._ledger.add(value, written, verdict, means, program=self._program, line=line)


_DAEMONSETS = "daemonsets has it for all"
_POD = "securityContext podSecurityContext nodeSelector tolerations affinity priorityClassName"

REMOVED: Mapping[Form, Mapping[str, str]] = {
    Form.PLUGIN_VALUES: {
        "legacyDaemonsetAPI": "it was for Kubernetes before 1.16",
    },
    Form.OPERATOR_VALUES: {
        "psp": "PodSecurityPolicy went with Kubernetes 1.25; psa is for its successor",
        "replicaCount": "the operator has one replica",
        "operator.validator": "validator took its place",
        "operator.clusterversion": "the operator asks the cluster",
        "gfd.migStrategy": "mig.strategy took its place",
        "gfd.discoveryIntervalSeconds": "the variable GFD_SLEEP_INTERVAL took its place",
        **{f"{it}.{word}": _DAEMONSETS for it in ("devicePlugin", "gfd") for word in _POD.split()},
    },
    Form.NFD_VALUES: {
        "topologyGC": "gc took its place",
        "nodeFeatureRule": "the chart always creates the kind",
        "serviceAccount": "each part has its own",
        "rbac": "each part has its own",
        "master.featureApi": "NodeFeature objects took the place of gRPC",
        "master.featureRulesController": "controllers follow from the feature gates",
        "master.crdController": "controllers follow from the feature gates",
        "master.resourceLabels": "rules with extendedResources took its place",
        "master.topologyUpdaterNs": "it is no longer needed",
        "master.service": "it was for gRPC",
        **dict.fromkeys(
            ("master.metricsPort", "master.healthPort", "worker.metricsPort", "worker.healthPort"),
            "port took its place",
        ),
        **dict.fromkeys(("master.args", "worker.args"), "extraArgs took its place"),
    },
}
"""Keys that charts once had, by form and path: the reason, or what took their place.

Sources: the history of ``values.yaml`` of gpu-operator, k8s-device-plugin and
node-feature-discovery, and of the operator's sample ClusterPolicy.
"""
