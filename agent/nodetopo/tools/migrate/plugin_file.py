"""Reads NVIDIA's file of ``version: v1``, which nodetopo accepts unchanged."""

import re
from collections.abc import Mapping
from contextlib import suppress

import yaml

from nodetopo.errors import InputError
from nodetopo.formats.document import MAX_CONFIGURATION_BYTES, Value
from nodetopo.kernel.settings.declare import key, options
from nodetopo.kernel.settings.nvidia import file as nvidia_file
from nodetopo.kernel.settings.nvidia.names import BY_PATH, ValueKind
from nodetopo.tools.migrate.findings import Verdict
from nodetopo.tools.migrate.forms import OURS
from nodetopo.tools.migrate.ledger import NOTHING, Ledger, maybe
from nodetopo.tools.migrate.nodes import alone, key_lines, shown_value
from nodetopo.tools.migrate.nvidia import PLUGIN, Setting

_PATHS = {path.lower(): path for path in BY_PATH}


def config_name(file: str) -> str:
    """Return the name of the configuration in the file *file* of a ConfigMap."""
    return re.sub(r"\.ya?ml$", "", file)


def read_plugin_file(ledger: Ledger, root: Value, name: str) -> None:
    """Judge each line of a file, which is the configuration called *name*."""
    ledger.saw(PLUGIN, root.file)
    if root.node.end_mark.index - root.node.start_mark.index > MAX_CONFIGURATION_BYTES:
        means = f"larger than {MAX_CONFIGURATION_BYTES >> 10} KiB, the most that nodetopo reads"
        ledger.add(root, name, Verdict.NOT_SUPPORTED, means, program=PLUGIN)
        return
    reader = _PluginFile(ledger, root)
    reader.section(root, ())
    ledger.settings_of_file(name, reader.settings)


class _PluginFile:
    """Goes through one file."""

    def __init__(self, ledger: Ledger, root: Value) -> None:
        self.settings: list[Setting] = []
        self._ledger = ledger
        self._whole: nvidia_file.NvidiaFile | None = None
        with suppress(InputError):  # then each line is read alone, to tell which one is refused
            self._whole = nvidia_file.read(root)
        self._warnings = _by_place(self._whole)

    def section(self, value: Value, above: tuple[str, ...]) -> None:
        """Judge the keys of *value*, which is below the keys *above*."""
        lines = key_lines(value)
        self._ledger.repeated(value, PLUGIN)
        for word, inner in value.entries().items():
            if (*above, word) == (nvidia_file.OURS,):
                self._own_section(inner)
            else:
                line = lines.get(word) or self._ledger.line_of(inner)
                self._line(inner, (*above, word), line)

    def _line(self, value: Value, keys: tuple[str, ...], line: int) -> None:
        read, problem = self._whole, None
        if read is None:
            try:
                read = nvidia_file.read(alone(value, keys))
            except InputError as error:
                problem = error
        warnings = self._warnings if read is self._whole else _by_place(read)
        shown, path = ".".join(keys), ".".join(keys).lower()
        written = f"{shown}: {shown_value(value)}"
        means = warnings.get(value.where, "")
        if means.startswith("unknown"):
            self._add(value, shown, Verdict.UNKNOWN, means, line)
        elif path == "version":
            verdict = Verdict.SAME if problem is None else Verdict.NOT_SUPPORTED
            means = "NVIDIA's form is read as it is" if problem is None else str(problem)
            self._add(value, written, verdict, means, line)
        elif path in _PATHS:
            name = BY_PATH[_PATHS[path]]
            is_given = read is not None and name.name in read.given
            setting = Setting(
                file=value.file,
                line=line,
                program=PLUGIN,
                written=written,
                name=name,
                given={name.name: read.given[name.name]} if read and is_given else {},
                problem=problem,
                is_kept=True,
            )
            self.settings.append(setting)
            if isinstance(value.node, yaml.MappingNode) and name.kind is ValueKind.TIME_SLICING:
                self._within(value, shown, warnings)
        elif isinstance(value.node, yaml.MappingNode):
            self.section(value, keys)
        elif problem is not None:
            self._add(value, shown, Verdict.NOT_SUPPORTED, str(problem), line)
        else:
            self._add(value, shown, Verdict.IGNORED, NOTHING, line)

    def _within(self, value: Value, above: str, warnings: Mapping[str, str]) -> None:
        """Judge ignored parts inside one setting, by the warnings of NVIDIA's reader."""
        lines = key_lines(value)
        items = value.items() if value.is_list() else []
        entries = {} if value.is_list() else value.entries()
        for word, inner in [*entries.items(), *((f"[{at}]", it) for at, it in enumerate(items))]:
            path = f"{above}{word}" if value.is_list() else f"{above}.{word}"
            means = warnings.get(inner.where)
            if means is not None:
                is_unknown = means.startswith("unknown")
                verdict = Verdict.UNKNOWN if is_unknown else Verdict.IGNORED
                self._add(inner, path, verdict, means, lines.get(word))
            elif not isinstance(inner.node, yaml.ScalarNode):
                self._within(inner, path, warnings)

    def _own_section(self, value: Value) -> None:
        """Judge nodetopo's own settings, below ``nodetopo`` in NVIDIA's file."""
        keys = tuple(key(name) for name in options())
        entries = value.entries() if isinstance(value.node, yaml.MappingNode) else {}
        for word, inner in entries.items():
            path = f"{nvidia_file.OURS}.{word}"
            verdict, means = Verdict.SAME, "nodetopo's own setting"
            if word not in keys:
                verdict, means = Verdict.UNKNOWN, f"no setting of nodetopo's{maybe(word, keys)}"
            self._ledger.add(inner, path, verdict, means, program=OURS)

    def _add(
        self, value: Value, written: str, verdict: Verdict, means: str, line: int | None
    ) -> None:
        self._ledger.add(value, written, verdict, means, program=PLUGIN, line=line)


def _by_place(read: nvidia_file.NvidiaFile | None) -> dict[str, str]:
    """Return the reader's warnings about single values, by the value's place.

    The place has colons and ends before ``: unknown key`` or `` is ignored``.
    """
    warnings = {}
    for text in () if read is None else read.warnings:
        for end in (": unknown", " is ignored"):
            place, separator, rest = text.partition(end)
            if separator:
                warnings[place] = f"{separator.lstrip(': ')}{rest}"
    return warnings
