"""Reads other programs' configuration: identifies a document, and calls its reader."""

import re
from collections.abc import Iterable, Mapping

import yaml

from nodetopo.errors import InputError
from nodetopo.formats.document import MAX_MIGRATED_NODES, Value, read_values
from nodetopo.tools.migrate import charts
from nodetopo.tools.migrate.containers import read_pod
from nodetopo.tools.migrate.embedded import embedded
from nodetopo.tools.migrate.findings import Report, Verdict
from nodetopo.tools.migrate.forms import Form, recognised
from nodetopo.tools.migrate.ledger import Ledger
from nodetopo.tools.migrate.nodes import below, items_of, key_lines, text_of
from nodetopo.tools.migrate.plugin_file import config_name, read_plugin_file
from nodetopo.tools.migrate.tables import read_table

RENDER = "render it first: helm template … | nodetopo migrate --check -"

_HELM = re.compile(
    r"\{\{[^}\n]{0,200}?(\.Values|\.Release|\.Chart|\.Capabilities|include |define |template )"
)
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Pod": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job"),
        ("spec", "template", "spec"),
    ),
}
"""The position of the pod specification in each kind of object."""


def report(sources: Iterable[tuple[str, str]], form: Form | None = None) -> Report:
    """Return the verdict on every line of *sources*, pairs of a name and a text.

    Args:
        form: of documents without ``kind``; ``None`` detects it by their keys.

    Raises:
        InputError: a text is not YAML, exceeds a limit, or is the template of a Helm chart.
    """
    ledger = Ledger()
    for name, text in sources:
        _file(ledger, name, text, form)
    return ledger.report()


def _file(ledger: Ledger, name: str, text: str, form: Form | None) -> None:
    template = _HELM.search(text)
    if template is not None:
        line = text.count("\n", 0, template.start()) + 1
        raise InputError(f"{name}:{line}: a template of a Helm chart", RENDER)
    try:
        documents = read_values(name, text, MAX_MIGRATED_NODES, may_repeat=True)
    except ValueError as error:
        cure = RENDER if "{{" in text else "correct the file, or leave it out"
        raise InputError(f"{name}: {error}", cure) from None
    for document in documents:
        _document(ledger, document, form)


def _document(ledger: Ledger, value: Value, form: Form | None) -> None:
    if not isinstance(value.node, yaml.MappingNode):
        if not value.is_null():
            ledger.add(value, "the document", Verdict.UNKNOWN, "it is no mapping")
        return
    entries = value.entries()
    if "kind" in entries and "apiVersion" in entries:
        _object(ledger, value, form)
        return
    chosen = form or recognised(value)
    if chosen is None:
        means = f"neither a manifest nor a file that is known; say with --as: {', '.join(Form)}"
        ledger.add(value, "the document", Verdict.UNKNOWN, means)
    else:
        _form(ledger, value, chosen, "default")


def _form(ledger: Ledger, value: Value, form: Form, name: str) -> None:
    """Judge a document of *form*; *name* is the name of a config of NVIDIA's plugin."""
    if form is Form.PLUGIN_CONFIG:
        read_plugin_file(ledger, value, name)
    else:
        read_table(ledger, value, form)


def _object(ledger: Ledger, value: Value, form: Form | None) -> None:
    """Judge an object of Kubernetes."""
    kind = text_of(value.entries()["kind"])
    name = text_of(below(value, "metadata", "name"))
    spec = below(value, *_TEMPLATES.get(kind, ("spec",)))
    if kind.endswith("List") and (items := below(value, "items")) is not None:
        for item in items_of(items):
            _document(ledger, item, form)
    elif kind == "ConfigMap":
        _config_map(ledger, value, name)
    elif kind in _TEMPLATES and spec is not None:
        read_pod(ledger, spec, f"{kind} {name}")
    elif kind == "ClusterPolicy" and spec is not None:
        read_table(ledger, spec, Form.OPERATOR_VALUES)
    elif kind == "NicClusterPolicy" and spec is not None:
        _nic_policy(ledger, spec)
    elif kind == "HelmRelease" and (inner := below(value, "spec", "values")) is not None:
        _document(ledger, inner, form)
    else:
        means = "no configuration of these programs"
        if kind == "Secret":
            means = "its content is not read"
        ledger.add(value, f"{kind} {name}", Verdict.NOT_OURS, means)


def _config_map(ledger: Ledger, value: Value, name: str) -> None:
    data = below(value, "data")
    entries = data.entries() if data is not None and not data.is_null() else {}
    lines = {} if data is None else key_lines(data)
    for word, text in entries.items():
        inner = embedded(text)
        form = None if inner is None else recognised(inner, is_values=False)
        if inner is None or form is None:
            means = "no configuration of these programs"
            ledger.add(text, f"{name}: {word}", Verdict.NOT_OURS, means, line=lines.get(word))
            continue
        with ledger.inside(text):
            _form(ledger, inner, form, config_name(word))
    if not entries:
        ledger.add(value, f"ConfigMap {name}", Verdict.NOT_OURS, "it holds no texts")


def _nic_policy(ledger: Ledger, spec: Value) -> None:
    """Judge the network operator's settings for the RDMA shared plugin."""
    for word, inner in spec.entries().items():
        config = below(inner, "config") if word == "rdmaSharedDevicePlugin" else None
        text = None if config is None else embedded(config)
        if config is None or text is None:
            means = "stays with NVIDIA's network operator"
            ledger.add(inner, word, Verdict.NOT_OURS, means, program=charts.OTHER)
            continue
        with ledger.inside(config):
            _form(ledger, text, Form.RDMA_CONFIG, word)
