"""Reads other programs' configuration: identifies a document, and calls its reader."""

import re
from collections.abc import Iterable, Mapping

import yaml

from nodetopo.errors import InputError
from nodetopo.formats.document import MAX_MIGRATED_NODES, Value, read_values
from nodetopo.formats.signatures import Reader, other_form
from nodetopo.tools.migrate import charts
from nodetopo.tools.migrate.containers import read_pod
from nodetopo.tools.migrate.embedded import embedded
from nodetopo.tools.migrate.findings import Report, Verdict
from nodetopo.tools.migrate.forms import CHARTS, Form, recognised
from nodetopo.tools.migrate.ledger import Ledger
from nodetopo.tools.migrate.nodes import below, is_empty, items_of, key_lines, text_of
from nodetopo.tools.migrate.owners import (
    DRA_DRIVER,
    KINDS,
    NETWORK_OPERATOR,
    NFD_RULES,
    Owner,
)
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
_OF_CHARTS: Mapping[str, tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]] = {
    "HelmRelease": (("spec", "chart", "spec", "chart"), (("spec", "values"),)),
    "HelmChart": (("spec", "chart"), (("spec", "valuesContent"),)),
    "Application": (
        ("spec", "source", "chart"),
        (("spec", "source", "helm", "values"), ("spec", "source", "helm", "valuesObject")),
    ),
}
"""By kind: where the chart's name is, and where its values are (Flux, K3s, Argo CD)."""
_NFD_MATCHES = ("matchFeatures", "matchAny", "matchOn")


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
        other = other_form(text, Reader.MIGRATE)
        if other is not None:
            raise InputError(f"{name}: this is {other.what}", other.cure) from None
        cure = RENDER if "{{" in text else "correct the file, or leave it out"
        raise InputError(f"{name}: {error}", cure) from None
    for document in documents:
        _document(ledger, document, form, text=text)


def _document(
    ledger: Ledger,
    value: Value,
    form: Form | None,
    *,
    chart: Form | Owner | None = None,
    text: str = "",
) -> None:
    """Judge a document.

    Args:
        chart: whose values it is, where the object around it says so.
        text: of its file; empty inside an object.
    """
    if not isinstance(value.node, yaml.MappingNode):
        if any(below(rule, word) is not None for rule in items_of(value) for word in _NFD_MATCHES):
            ledger.add(value, "the document", Verdict.NOT_OURS, NFD_RULES, program=charts.NFD)
        elif not value.is_null():
            means = _other(text) or "it is no mapping"
            ledger.add(value, "the document", Verdict.UNKNOWN, means)
        return
    entries = value.entries()
    if "kind" in entries and "apiVersion" in entries:
        _object(ledger, value, form)
        return
    chosen = form or chart or recognised(value)
    # A version alone makes a plugin's configuration of any report that has one.
    other = _other(text) if chosen in (None, Form.PLUGIN_CONFIG) and form is None else ""
    if chosen is None or other:
        means = other or (
            "neither a manifest nor a file that is known: it has no key that only one of these "
            f"programs has; say with --as: {', '.join(Form)}"
        )
        ledger.add(value, "the document", Verdict.UNKNOWN, means)
    else:
        _form(ledger, value, chosen, "default")


def _other(text: str) -> str:
    """Return what *text* is if it is for another reader; otherwise an empty text."""
    other = other_form(text, Reader.MIGRATE)
    return f"this is {other.what}: {other.cure}" if other else ""


def _form(ledger: Ledger, value: Value, form: Form | Owner, name: str) -> None:
    """Judge a document of *form*; *name* is the name of a config of NVIDIA's plugin."""
    if form is NETWORK_OPERATOR:
        _network_operator(ledger, value)
    elif isinstance(form, Owner):
        verdict, means = form.verdict, form.means
        gpus = text_of(below(value, "resources", "gpus", "enabled"))
        if form is DRA_DRIVER and gpus == "false":
            verdict, means = Verdict.NOT_OURS, "stays: the driver of compute domains alone"
        ledger.add(value, "the document", verdict, means, program=form.program)
    elif form is Form.PLUGIN_CONFIG:
        read_plugin_file(ledger, value, name)
    else:
        read_table(ledger, value, form)


def _object(ledger: Ledger, value: Value, form: Form | None) -> None:
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
    elif kind in ("NicClusterPolicy", "NicNodePolicy") and spec is not None:
        _network_operator(ledger, spec)
    elif kind in _OF_CHARTS:
        _release(ledger, value, form)
    elif kind in KINDS:
        program, verdict, means = KINDS[kind]
        ledger.add(value, f"{kind} {name}", verdict, means, program=program)
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


def _release(ledger: Ledger, value: Value, form: Form | None) -> None:
    """Judge the values that an object has for a chart."""
    kind = text_of(value.entries()["kind"])
    charts_, places = _OF_CHARTS[kind]
    chart = CHARTS.get(text_of(below(value, *charts_)).rpartition("/")[2])
    inner = [it for place in places if (it := below(value, *place)) is not None]
    for values in inner:
        text = embedded(values)
        if isinstance(values.node, yaml.MappingNode):
            _document(ledger, values, form, chart=chart)
        elif text is not None:
            with ledger.inside(values):
                _document(ledger, text, form, chart=chart)
        else:
            ledger.add(values, "values", Verdict.UNKNOWN, "no values that can be read")
    if not inner:
        ledger.add(value, kind, Verdict.NOT_OURS, "it holds no values of a chart")


def _network_operator(ledger: Ledger, settings: Value) -> None:
    """Judge the network operator's settings, of which the RDMA shared plugin's are replaced."""
    for word, inner in settings.entries().items():
        is_rdma = word == "rdmaSharedDevicePlugin" and not is_empty(inner)
        config = below(inner, "config") if is_rdma else None
        text = None if config is None else embedded(config)
        if config is not None and text is not None:
            with ledger.inside(config):
                _form(ledger, text, Form.RDMA_CONFIG, word)
        elif is_rdma and text_of(below(inner, "deploy")) != "false":
            means = f"the resources of the RDMA shared plugin are not here; {RENDER}"
            ledger.add(inner, word, Verdict.UNKNOWN, means, program=charts.RDMA)
        else:
            ledger.add(
                inner,
                word,
                Verdict.NOT_OURS,
                NETWORK_OPERATOR.means,
                program=NETWORK_OPERATOR.program,
            )
