"""Reads other programs' configuration: what a document is, and the verdict on each of its lines."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import yaml

from agent.config.nvidia import file as nvidia_file
from agent.config.nvidia.names import BY_PATH, Name, ValueKind
from agent.config.origin import Given
from agent.config.settings import key, options
from agent.errors import InputError, closest
from agent.formats.document import (
    MAX_CONFIGURATION_BYTES,
    MAX_MIGRATED_NODES,
    Value,
    read_values,
)
from agent.migrate import charts
from agent.migrate.charts import Entry, Inner, Rule, Table
from agent.migrate.findings import LOST, Finding, Plan, Report, Verdict
from agent.migrate.forms import OURS, SUBCHARTS, TABLES, Form, program_of, recognised, siblings_of
from agent.migrate.nodes import (
    alone,
    below,
    cut,
    is_empty,
    items_of,
    key_lines,
    shown_value,
    text_of,
)
from agent.migrate.nvidia import PLUGIN, Setting, defaults, judged, known, merged, missing

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
"""Where a kind of object keeps the specification of its pods."""

_SHELLS = ("sh", "bash", "ash", "dash")
_NOTHING = "nothing is set"


def report(sources: Iterable[tuple[str, str]], form: Form | None = None) -> Report:
    """Return the verdict on every line of *sources*, pairs of a name and a text.

    Args:
        form: what documents without ``kind`` are; ``None`` to tell by their keys.

    Raises:
        InputError: a text is no YAML, beyond a limit, or the template of a Helm chart.
    """
    reader = _Reader(form)
    for name, text in sources:
        reader.read(name, text)
    reader.judge()
    files = {finding.file: at for at, finding in reversed(list(enumerate(reader.findings)))}
    reader.findings.sort(key=lambda it: (files[it.file], it.line is None, it.line or 0))
    for finding in reader.findings:
        if finding.verdict not in LOST:
            reader.plan.components.update(finding.components)
    return Report(findings=tuple(reader.findings), plan=reader.plan)


class _Reader:
    """Goes through documents, and collects findings."""

    def __init__(self, form: Form | None) -> None:
        self.findings: list[Finding] = []
        self._scopes: list[list[Setting]] = []
        self.plan = Plan()
        self.seen: dict[str, str] = {}
        """The file in which each program was found first."""
        self._form = form
        self._known = known()
        self._last_line: int | None = None

    # Documents.

    def read(self, name: str, text: str) -> None:
        """Read one file."""
        found = _HELM.search(text)
        if found is not None:
            line = text.count("\n", 0, found.start()) + 1
            raise InputError(f"{name}:{line}: a template of a Helm chart", RENDER)
        try:
            documents = read_values(name, text, MAX_MIGRATED_NODES, may_repeat=True)
        except ValueError as error:
            cure = RENDER if "{{" in text else "correct the file, or leave it out"
            raise InputError(f"{name}: {error}", cure) from None
        for document in documents:
            self._document(document)

    def judge(self) -> None:
        """Judge all settings, each beside those that it takes effect with."""
        if PLUGIN in self.seen:
            self.findings += missing(self.seen[PLUGIN], self.plan)
            for name, given in defaults().items():
                self.plan.base.setdefault(name, given)
        everywhere = self.plan.base
        for named in self.plan.named.values():
            everywhere = merged(everywhere, named)
        for scope in self._scopes:
            is_file = any(setting.is_kept for setting in scope)
            self.findings += judged(scope, self.plan.base if is_file else everywhere)

    def _document(self, value: Value) -> None:
        if not isinstance(value.node, yaml.MappingNode):
            if not value.is_null():
                self._add(value, "the document", Verdict.UNKNOWN, "it is no mapping")
            return
        entries = value.entries()
        if "kind" in entries and "apiVersion" in entries:
            self._object(value)
            return
        form = self._form or recognised(value)
        if form is None:
            means = f"neither a manifest nor a file that is known; say with --as: {', '.join(Form)}"
            self._add(value, "the document", Verdict.UNKNOWN, means)
        elif form is Form.PLUGIN_CONFIG:
            self._plugin_config(value, "default")
        else:
            program, table = TABLES[form]
            self._table(value, table, program, form)

    def _object(self, value: Value) -> None:
        """Judge an object of Kubernetes."""
        kind = text_of(value.entries()["kind"])
        name = text_of(below(value, "metadata", "name"))
        spec = below(value, *_TEMPLATES.get(kind, ("spec",)))
        if kind.endswith("List") and (items := below(value, "items")) is not None:
            for item in items_of(items):
                self._document(item)
        elif kind == "ConfigMap":
            self._config_map(value, name)
        elif kind in _TEMPLATES and spec is not None:
            self._pod(spec, f"{kind} {name}")
        elif kind == "ClusterPolicy" and spec is not None:
            table = charts.OPERATOR_VALUES
            self._table(spec, table, charts.OPERATOR, Form.OPERATOR_VALUES)
        elif kind == "NicClusterPolicy" and spec is not None:
            self._nic_policy(spec)
        elif kind == "HelmRelease" and (inner := below(value, "spec", "values")) is not None:
            self._document(inner)
        else:
            means = "no configuration of these programs"
            if kind == "Secret":
                means = "its content is not read"
            self._add(value, f"{kind} {name}", Verdict.NOT_OURS, means)

    def _config_map(self, value: Value, name: str) -> None:
        data = below(value, "data")
        entries = data.entries() if data is not None and not data.is_null() else {}
        lines = {} if data is None else key_lines(data)
        for word, text in entries.items():
            line = lines.get(word)
            inner = self._embedded(text)
            form = None if inner is None else recognised(inner, is_values=False)
            if inner is None or form is None:
                means = "no configuration of these programs"
                self._add(text, f"{name}: {word}", Verdict.NOT_OURS, means, line=line)
            else:
                self._inside(text, inner, form, word)
        if not entries:
            self._add(value, f"ConfigMap {name}", Verdict.NOT_OURS, "it holds no texts")

    def _nic_policy(self, spec: Value) -> None:
        """Judge what the network operator gives to the RDMA shared plugin."""
        for word, inner in spec.entries().items():
            config = below(inner, "config") if word == "rdmaSharedDevicePlugin" else None
            text = None if config is None else self._embedded(config)
            if config is None or text is None:
                means = "stays with NVIDIA's network operator"
                self._add(inner, word, Verdict.NOT_OURS, means, program=charts.OTHER)
            else:
                self._inside(config, text, Form.RDMA_CONFIG, word)

    def _inside(self, around: Value, inner: Value, form: Form, name: str) -> None:
        """Judge the document *inner* that the text *around* holds."""
        self._last_line = around.node.end_mark.line + 1
        if form is Form.PLUGIN_CONFIG:
            self._plugin_config(inner, re.sub(r"\.ya?ml$", "", name))
        else:
            program, table = TABLES[form]
            self._table(inner, table, program, form)
        self._last_line = None

    def _embedded(self, value: Value) -> Value | None:
        """Return the document that is the text of *value*; ``None`` where it is none.

        Lines before it are empty, so that its marks are those of the file around it.
        """
        if not isinstance(value.node, yaml.ScalarNode) or value.node.style is None:
            return None
        is_block = value.node.style in ("|", ">")
        before = value.node.start_mark.line + is_block
        try:
            text = "\n" * before + value.node.value
            documents = read_values(value.file, text, MAX_MIGRATED_NODES, may_repeat=True)
        except ValueError:
            return None
        is_one = len(documents) == 1 and isinstance(documents[0].node, yaml.MappingNode)
        return documents[0] if is_one else None

    # NVIDIA's file of ``version: v1``.

    def _plugin_config(self, root: Value, name: str) -> None:
        """Judge each line of one of NVIDIA's files, which is the configuration called *name*."""
        self.seen.setdefault(PLUGIN, root.file)
        if root.node.end_mark.index - root.node.start_mark.index > MAX_CONFIGURATION_BYTES:
            means = f"larger than {MAX_CONFIGURATION_BYTES >> 10} KiB, the most that nodetopo reads"
            self._add(root, name, Verdict.NOT_SUPPORTED, means, program=PLUGIN)
            return
        settings: list[Setting] = []
        try:
            whole = nvidia_file.read(root)
        except InputError:
            whole = None
        self._section(root, (), whole, settings)
        given = {word: one for setting in settings for word, one in setting.given.items()}
        self.plan.named.setdefault(name, {}).update(given)
        self._scopes.append(settings)

    def _section(
        self,
        value: Value,
        above: tuple[str, ...],
        whole: nvidia_file.NvidiaFile | None,
        settings: list[Setting],
    ) -> None:
        lines = key_lines(value)
        paths = {path.lower(): path for path in BY_PATH}
        by_place = _by_place(whole)
        self._repeated(value, PLUGIN)
        for word, inner in value.entries().items():
            keys = (*above, word)
            path = ".".join(keys).lower()
            line = lines.get(word) or self._line(inner)
            if keys == (nvidia_file.OURS,):
                self._own_section(inner)
                continue
            problem: InputError | None = None
            read = whole
            if read is None:
                try:
                    read = nvidia_file.read(alone(inner, keys))
                except InputError as error:
                    problem = error
            warnings = by_place if read is whole else _by_place(read)
            shown = ".".join(keys)
            means = warnings.get(inner.where, "")
            if means.startswith("unknown"):
                self._add(inner, shown, Verdict.UNKNOWN, means, program=PLUGIN, line=line)
            elif path == "version":
                verdict = Verdict.SAME if problem is None else Verdict.NOT_SUPPORTED
                means = "NVIDIA's form is read as it is" if problem is None else str(problem)
                written = f"{shown}: {shown_value(inner)}"
                self._add(inner, written, verdict, means, program=PLUGIN, line=line)
            elif path in paths:
                name = BY_PATH[paths[path]]
                one = Setting(
                    file=inner.file,
                    line=line,
                    program=PLUGIN,
                    written=f"{shown}: {shown_value(inner)}",
                    name=name,
                    given={}
                    if read is None or name.name not in read.given
                    else {name.name: read.given[name.name]},
                    problem=problem,
                    is_kept=True,
                )
                settings.append(one)
                if isinstance(inner.node, yaml.MappingNode) and name.kind is ValueKind.TIME_SLICING:
                    self._within(inner, shown, warnings)
            elif isinstance(inner.node, yaml.MappingNode):
                self._section(inner, keys, whole, settings)
            elif problem is not None:
                self._add(
                    inner, shown, Verdict.NOT_SUPPORTED, str(problem), program=PLUGIN, line=line
                )
            else:
                self._add(inner, shown, Verdict.IGNORED, _NOTHING, program=PLUGIN, line=line)

    def _within(self, value: Value, above: str, warnings: Mapping[str, str]) -> None:
        """Judge what NVIDIA's program ignores inside of one setting, by its reader's warnings."""
        lines = key_lines(value)
        items = value.items() if value.is_list() else []
        entries = {} if value.is_list() else value.entries()
        for word, inner in [*entries.items(), *((f"[{at}]", it) for at, it in enumerate(items))]:
            path = f"{above}{word}" if value.is_list() else f"{above}.{word}"
            means = warnings.get(inner.where)
            if means is not None:
                is_unknown = means.startswith("unknown")
                verdict = Verdict.UNKNOWN if is_unknown else Verdict.IGNORED
                line = lines.get(word)
                self._add(inner, path, verdict, means, program=PLUGIN, line=line)
            elif not isinstance(inner.node, yaml.ScalarNode):
                self._within(inner, path, warnings)

    def _own_section(self, value: Value) -> None:
        """Judge what is ours already, below ``nodetopo`` in NVIDIA's file."""
        keys = tuple(key(name) for name in options())
        entries = value.entries() if isinstance(value.node, yaml.MappingNode) else {}
        for word, inner in entries.items():
            path = f"{nvidia_file.OURS}.{word}"
            if word in keys:
                self._add(inner, path, Verdict.SAME, "nodetopo's own setting", program=OURS)
            else:
                means = f"no setting of nodetopo's{_maybe(word, keys)}"
                self._add(inner, path, Verdict.UNKNOWN, means, program=OURS)

    # Values of charts, and other files that are tables of keys.

    def _table(
        self,
        value: Value,
        table: Table,
        program: str,
        form: Form,
        *,
        path: str = "",
        about: str = "",
    ) -> None:
        """Judge each key of *value*, which stands at *path* of *table*, with the name *about*."""
        if value.is_list():
            for index, item in enumerate(value.items()):
                self._table(item, table, program, form, path=f"{path}[]", about=f"{about}[{index}]")
            return
        if not isinstance(value.node, yaml.MappingNode):
            verdict = Verdict.IGNORED if value.is_null() else Verdict.UNKNOWN
            means = _NOTHING if value.is_null() else "a mapping is expected here"
            self._add(value, about, verdict, means, program=program)
            return
        lines = key_lines(value)
        scope: list[Setting] = []
        entries = value.entries()
        self.seen.setdefault(program, value.file)
        self._repeated(value, program)
        for word, inner in entries.items():
            inner_path = f"{path}.{word}" if path else word
            inner_about = f"{about}.{word}" if about else word
            line = lines.get(word) or self._line(inner)
            entry = table.get(inner_path)
            is_section = any(it.startswith((f"{inner_path}.", f"{inner_path}[")) for it in table)
            if not path and SUBCHARTS.get(word) is form and word not in table:
                self._table(
                    inner, charts.NFD_VALUES, charts.NFD, Form.NFD_VALUES, about=inner_about
                )
            elif entry is not None:
                self._entry(
                    inner,
                    entry,
                    program=program,
                    about=inner_about,
                    line=line,
                    beside=entries,
                    scope=scope,
                )
            elif is_section:
                self._table(inner, table, program, form, path=inner_path, about=inner_about)
            else:
                siblings = siblings_of(table, path)
                means = f"no key of {program}{_maybe(word, siblings)}"
                self._add(inner, inner_about, Verdict.UNKNOWN, means, program=program, line=line)
        self._place(scope)

    def _entry(
        self,
        value: Value,
        entry: Entry,
        *,
        program: str,
        about: str,
        line: int,
        beside: Mapping[str, Value],
        scope: list[Setting],
    ) -> None:
        """Judge the value of a key that is known."""
        if is_empty(value) and not (isinstance(entry, str) and not value.is_null()):
            self._add(value, about, Verdict.IGNORED, _NOTHING, program=program, line=line)
        elif entry is Inner.CONFIGS:
            for word, config in value.entries().items():
                inner = self._embedded(config)
                if inner is None:
                    means = "no YAML of one document: NVIDIA's program refuses it, too"
                    self._add(
                        config, f"{about}.{word}", Verdict.NOT_SUPPORTED, means, program=PLUGIN
                    )
                else:
                    self._inside(config, inner, Form.PLUGIN_CONFIG, word)
        elif entry is Inner.ENVIRONMENT:
            self._environment(value, charts.GFD if about.startswith("gfd") else PLUGIN)
        elif entry is Inner.ARGUMENTS:
            self._arguments(items_of(value), PLUGIN)
        elif isinstance(entry, Rule):
            self._rule(value, entry, program=program, about=about, line=line, beside=beside)
        else:
            assert isinstance(entry, str)
            text = ",".join(map(text_of, items_of(value))) if value.is_list() else text_of(value)
            written = f"{about}: {shown_value(value)}"
            name = self._known[entry]
            scope.append(
                self._setting(
                    place=(value.file, line),
                    program=program,
                    written=written,
                    name=name,
                    text=text,
                    variable=entry,
                )
            )

    def _rule(
        self,
        value: Value,
        rule: Rule,
        *,
        program: str,
        about: str,
        line: int,
        beside: Mapping[str, Value] = MappingProxyType({}),
        has_value: bool = True,
    ) -> None:
        """Judge the value of a key by the *rule* for it; *has_value*: it is shown."""
        if rule.off is not None and text_of(value).lower() in ("false", "no", "off"):
            rule = rule.off
        text = text_of(value)
        if text and text in rule.same:
            rule = replace(rule, verdict=Verdict.SAME)
        prefix = text_of(beside.get("resourcePrefix")) or "rdma"
        means = rule.means.replace("$value", text).replace("$resource", f"{prefix}/{text}")
        is_shown = has_value and isinstance(value.node, yaml.ScalarNode)
        is_shown = is_shown and rule.verdict is not Verdict.NOT_OURS
        settings = {word: it.replace("$value", text) for word, it in rule.settings.items()}
        self.plan.settings |= settings
        self.findings.append(
            Finding(
                file=value.file,
                line=line,
                program=program,
                written=f"{about}: {shown_value(value)}" if is_shown else about,
                verdict=rule.verdict,
                means=means,
                settings=settings,
                components=rule.components,
            )
        )

    # Pods.

    def _pod(self, spec: Value, about: str) -> None:
        """Judge the containers of a pod, and of the pod what would be set at nodetopo's."""
        programs: set[str] = set()
        for word in ("initContainers", "containers"):
            containers = below(spec, word)
            for container in [] if containers is None else items_of(containers):
                program = program_of(container)
                programs.add(program)
                self.seen.setdefault(program, spec.file)
                self._container(container, program, about)
        if not programs & {PLUGIN, charts.GFD}:
            return
        lines = key_lines(spec)
        for word, inner in spec.entries().items():
            entry = charts.POD.get(word)
            if isinstance(entry, Rule) and not is_empty(inner):
                line = lines.get(word) or self._line(inner)
                self._rule(inner, entry, program=PLUGIN, about=f"{about}: {word}", line=line)

    def _container(self, container: Value, program: str, about: str) -> None:
        if not isinstance(container.node, yaml.MappingNode):
            return
        entries = container.entries()
        name = text_of(entries.get("name"))
        if program in (charts.OTHER, OURS):
            means = "nodetopo itself" if program == OURS else "another program"
            written = f"{about}: container {name}"
            self._add(container, written, Verdict.NOT_OURS, means, program=program)
            return
        words = [item for part in ("command", "args") for item in items_of(entries.get(part))]
        if words and items_of(entries.get("command")):
            words = words[1:]
        before = self._count()
        shell = text_of(next(iter(items_of(entries.get("command"))), None)).rpartition("/")[2]
        if shell in _SHELLS:
            means = "a command line of a shell is not read"
            self._add(container, f"container {name}", Verdict.UNKNOWN, means, program=program)
        else:
            self._arguments(words, program)
        if (variables := entries.get("env")) is not None:
            self._environment(variables, program)
        if self._count() == before:
            verdict, means = Verdict.SAME, "nothing is set; nodetopo runs in its place"
            if program in (charts.RDMA, charts.NFD, charts.OPERATOR):
                verdict, means = Verdict.NOT_OURS, f"stays: {program}"
            written = f"{about}: container {name}"
            self._add(container, written, verdict, means, program=program)

    def _count(self) -> int:
        """Return the number of lines so far, those included that are still to be judged."""
        return len(self.findings) + sum(map(len, self._scopes))

    def _environment(self, variables: Value, program: str) -> None:
        """Judge the variables of a container; values of unknown ones are not shown."""
        scope: list[Setting] = []
        for item in items_of(variables):
            word, value = text_of(below(item, "name")), below(item, "value")
            line = self._line(item)
            short = word.removeprefix("GFD_") if word not in self._known else word
            rule = charts.VARIABLES.get(word)
            if program in (charts.NFD, charts.RDMA, charts.OPERATOR):
                self._add(item, word, Verdict.NOT_OURS, f"stays: {program}", program=program)
            elif isinstance(rule, Rule):
                self._rule(item, rule, program=program, about=word, line=line)
            elif short not in self._known:
                names = (*self._known, *charts.VARIABLES)
                names = tuple(it for it in names if it.isupper())
                means = f"no variable of {program}{_maybe(word, names)}"
                self._add(item, word, Verdict.UNKNOWN, means, program=program)
            elif value is None:
                means = "its value is not in the manifest"
                self._add(item, word, Verdict.UNKNOWN, means, program=program)
            else:
                written, name = f"{word}={shown_value(value)}", self._known[short]
                text = text_of(value)
                scope.append(
                    self._setting(
                        place=(item.file, line),
                        program=program,
                        written=written,
                        name=name,
                        text=text,
                        variable=short,
                    )
                )
        self._place(scope)

    def _arguments(self, words: list[Value], program: str) -> None:
        """Judge flags, as ``--flag=value`` or ``--flag value``, with one dash or two."""
        table = {charts.NFD: charts.NFD_FLAGS, charts.RDMA: charts.RDMA_FLAGS}.get(
            program, charts.FLAGS
        )
        names = {} if program in (charts.NFD, charts.RDMA) else self._known
        scope: list[Setting] = []
        waiting = list(words)
        while waiting:
            item = waiting.pop(0)
            flag, separator, text = text_of(item).partition("=")
            bare = flag.lstrip("-")
            line = self._line(item)
            if not flag.startswith("-"):
                means = "no flag, and not judged"
                self._add(item, "an argument", Verdict.UNKNOWN, means, program=program)
                continue
            name, rule = names.get(f"--{bare}"), table.get(bare)
            takes_value = rule is not None or (
                name is not None and name.kind is not ValueKind.SWITCH
            )
            if (
                not separator
                and takes_value
                and waiting
                and not text_of(waiting[0]).startswith("-")
            ):
                text = text_of(waiting.pop(0))
            elif not separator and name is not None and name.kind is ValueKind.SWITCH:
                text = "true"
            if name is not None:
                scope.append(
                    self._setting(
                        place=(item.file, line),
                        program=program,
                        written=f"{flag}={cut(text)}",
                        name=name,
                        text=text,
                    )
                )
            elif isinstance(rule, Rule):
                self._rule(item, rule, program=program, about=flag, line=line, has_value=False)
            else:
                known_flags = [it.lstrip("-") for it in names if it.startswith("--")]
                means = f"no flag of {program}{_maybe(bare, (*known_flags, *table))}"
                self._add(item, flag, Verdict.UNKNOWN, means, program=program)
        self._place(scope)

    # Settings of NVIDIA's programs.

    def _setting(
        self,
        *,
        place: tuple[str, int],
        program: str,
        written: str,
        name: Name,
        text: str,
        variable: str | None = None,
    ) -> Setting:
        """Return the setting that a flag is with the value *text*, or the *variable*.

        *place* is the file and the line.
        """
        given: Mapping[str, Given] = {}
        problem = None
        flags = {name.name: text} if variable is None else {}
        environment = {} if variable is None else {variable: text}
        try:
            given = nvidia_file.joined(flags, environment, {})
        except InputError as error:
            problem = error
        file, line = place
        return Setting(
            file=file,
            line=line,
            program=program,
            written=written,
            name=name,
            given=given,
            problem=problem,
        )

    def _place(self, scope: list[Setting]) -> None:
        """Judge the settings of one place that is no file, and take them into the plan."""
        self._scopes.append(scope)
        for setting in scope:
            for word, given in setting.given.items():
                before = self.plan.base.get(word)
                if before is not None and before.value != given.value and setting.name.ours:
                    means = f"set to two values: {before.origin} and {given.origin} say otherwise"
                    self.findings.append(
                        Finding(
                            file=setting.file,
                            line=setting.line,
                            program=setting.program,
                            written=setting.written,
                            verdict=Verdict.DIFFERS,
                            means=means,
                        )
                    )
                if before is None or given.place >= before.place:
                    self.plan.base[word] = given

    # Findings.

    def _repeated(self, value: Value, program: str) -> None:
        """Report keys that stand twice in a mapping, of which the last one counts."""
        for text in value.repeated():
            place, _, means = text.partition(": ")
            line = int(place.rsplit(":", 2)[-2])
            self._add(value, "a repeated key", Verdict.IGNORED, means, program=program, line=line)

    def _add(
        self,
        value: Value,
        written: str,
        verdict: Verdict,
        means: str,
        *,
        program: str = charts.OTHER,
        line: int | None = None,
    ) -> None:
        self.findings.append(
            Finding(
                file=value.file,
                line=line or self._line(value),
                program=program,
                written=written,
                verdict=verdict,
                means=means,
            )
        )

    def _line(self, value: Value) -> int:
        line = int(value.node.start_mark.line) + 1
        return line if self._last_line is None else min(line, self._last_line)


def _by_place(read: nvidia_file.NvidiaFile | None) -> dict[str, str]:
    """Return the reader's warnings about single values, by the value's place.

    The place has colons and ends before ``: unknown key`` or `` is ignored``.
    """
    found = {}
    for text in () if read is None else read.warnings:
        for end in (": unknown", " is ignored"):
            place, separator, rest = text.partition(end)
            if separator:
                found[place] = f"{separator.lstrip(': ')}{rest}"
    return found


def _maybe(word: str, names: Iterable[str]) -> str:
    """Return a question for a word that may be misspelt; nothing where no name is near."""
    close = closest(word, names)
    return f": did you mean {close!r}?" if close else ""
