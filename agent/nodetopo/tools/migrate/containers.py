"""Reads the containers of pods: flags and variables, and other settings of the pod."""

import yaml

from nodetopo.formats.document import Value
from nodetopo.kernel.settings.nvidia.names import ValueKind
from nodetopo.tools.migrate import charts
from nodetopo.tools.migrate.charts import Rule
from nodetopo.tools.migrate.findings import Verdict
from nodetopo.tools.migrate.forms import OURS, program_of
from nodetopo.tools.migrate.ledger import Ledger, maybe, setting_of
from nodetopo.tools.migrate.nodes import (
    below,
    cut,
    is_empty,
    items_of,
    key_lines,
    shown_value,
    text_of,
)
from nodetopo.tools.migrate.nvidia import PLUGIN, Setting
from nodetopo.tools.migrate.owners import judged_container

_SHELLS = ("sh", "bash", "ash", "dash")
_FLAGS = {charts.NFD: charts.NFD_FLAGS, charts.RDMA: charts.RDMA_FLAGS}
_STAYING = (charts.NFD, charts.RDMA, charts.OPERATOR)
"""Programs that stay, so that their variables are not judged."""


def read_pod(ledger: Ledger, spec: Value, about: str) -> None:
    """Judge the containers of a pod, and the needs of nodetopo's pod."""
    programs: set[str] = set()
    for word in ("initContainers", "containers"):
        for container in items_of(below(spec, word)):
            program = program_of(container)
            programs.add(program)
            ledger.saw(program, spec.file)
            _container(ledger, container, program, about, spec)
    if not programs & {PLUGIN, charts.GFD}:
        return
    lines = key_lines(spec)
    for word, inner in spec.entries().items():
        entry = charts.POD.get(word)
        if isinstance(entry, Rule) and not is_empty(inner):
            line = lines.get(word) or ledger.line_of(inner)
            ledger.by_rule(inner, entry, program=PLUGIN, about=f"{about}: {word}", line=line)


def _container(ledger: Ledger, container: Value, program: str, about: str, spec: Value) -> None:
    if not isinstance(container.node, yaml.MappingNode):
        return
    entries = container.entries()
    name = text_of(entries.get("name"))
    written = f"{about}: container {name}"
    if program == OURS:
        ledger.add(container, written, Verdict.NOT_OURS, "nodetopo itself", program=program)
        return
    if program == charts.OTHER:
        program, verdict, means = judged_container(container, spec)
        ledger.add(container, written, verdict, means, program=program)
        return
    command = items_of(entries.get("command"))
    words = [*command, *items_of(entries.get("args"))][1 if command else 0 :]
    before = ledger.count
    if text_of(next(iter(command), None)).rpartition("/")[2] in _SHELLS:
        means = "a command line of a shell is not read"
        ledger.add(container, f"container {name}", Verdict.UNKNOWN, means, program=program)
    else:
        read_arguments(ledger, words, program)
    if (variables := entries.get("env")) is not None:
        read_environment(ledger, variables, program)
    if ledger.count == before:
        verdict, means = Verdict.SAME, "nothing is set; nodetopo runs in its place"
        if program in _STAYING:
            verdict, means = Verdict.NOT_OURS, f"stays: {program}"
        ledger.add(container, written, verdict, means, program=program)


def read_environment(ledger: Ledger, variables: Value, program: str) -> None:
    """Judge the variables of a container; values of unknown ones are not shown."""
    scope: list[Setting] = []
    for item in items_of(variables):
        word, value = text_of(below(item, "name")), below(item, "value")
        line = ledger.line_of(item)
        short = word.removeprefix("GFD_") if word not in ledger.names else word
        rule = charts.VARIABLES.get(word)
        if program in _STAYING:
            ledger.add(item, word, Verdict.NOT_OURS, f"stays: {program}", program=program)
        elif isinstance(rule, Rule):
            ledger.by_rule(item, rule, program=program, about=word, line=line)
        elif short not in ledger.names:
            names = [name for name in (*ledger.names, *charts.VARIABLES) if name.isupper()]
            means = f"no variable of {program}{maybe(word, names)}"
            ledger.add(item, word, Verdict.UNKNOWN, means, program=program)
        elif value is None:
            means = "its value is not in the manifest"
            ledger.add(item, word, Verdict.UNKNOWN, means, program=program)
        else:
            setting = setting_of(
                place=(item.file, line),
                program=program,
                written=f"{word}={shown_value(value)}",
                name=ledger.names[short],
                text=text_of(value),
                variable=short,
            )
            scope.append(setting)
    ledger.settings_of_place(scope)


def read_arguments(ledger: Ledger, words: list[Value], program: str) -> None:
    """Judge flags, as ``--flag=value`` or ``--flag value``, with one dash or two."""
    table = _FLAGS.get(program, charts.FLAGS)
    names = {} if program in _FLAGS else ledger.names
    scope: list[Setting] = []
    waiting = list(words)
    while waiting:
        item = waiting.pop(0)
        flag, separator, text = text_of(item).partition("=")
        bare = flag.lstrip("-")
        line = ledger.line_of(item)
        if not flag.startswith("-"):
            means = "no flag, and not judged"
            ledger.add(item, "an argument", Verdict.UNKNOWN, means, program=program)
            continue
        name, rule = names.get(f"--{bare}"), table.get(bare)
        is_switch = name is not None and name.kind is ValueKind.SWITCH
        takes_value = rule is not None or (name is not None and not is_switch)
        is_next_value = bool(waiting) and not text_of(waiting[0]).startswith("-")
        if not separator and takes_value and is_next_value:
            text = text_of(waiting.pop(0))
        elif not separator and is_switch:
            text = "true"
        if name is not None:
            written, place = f"{flag}={cut(text)}", (item.file, line)
            scope.append(
                setting_of(place=place, program=program, written=written, name=name, text=text)
            )
        elif isinstance(rule, Rule):
            ledger.by_rule(item, rule, program=program, about=flag, line=line, has_value=False)
        else:
            flags = [known.lstrip("-") for known in names if known.startswith("--")]
            means = f"no flag of {program}{maybe(bare, (*flags, *table))}"
            ledger.add(item, flag, Verdict.UNKNOWN, means, program=program)
    ledger.settings_of_place(scope)
