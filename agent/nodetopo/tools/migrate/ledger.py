"""Where the readers of all forms enter their findings, and the settings that are judged last."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import yaml
from msgspec.structs import replace

from nodetopo.errors import InputError, closest
from nodetopo.formats.document import Value
from nodetopo.kernel.settings.nvidia import file as nvidia_file
from nodetopo.kernel.settings.nvidia.names import Name
from nodetopo.kernel.settings.origin import Given
from nodetopo.tools.migrate import charts
from nodetopo.tools.migrate.charts import Rule
from nodetopo.tools.migrate.findings import LOST, Finding, Plan, Report, Verdict
from nodetopo.tools.migrate.nodes import shown_value, text_of
from nodetopo.tools.migrate.nvidia import PLUGIN, Setting, defaults, judged, known, merged, missing

NOTHING = "nothing is set"


class Ledger:
    """Findings, settings still to be judged, and the plan that they add up to."""

    def __init__(self) -> None:
        self.names = known()  # every setting of NVIDIA's programs by each of its names
        self._findings: list[Finding] = []
        self._scopes: list[list[Setting]] = []
        self._plan = Plan()
        self._seen: dict[str, str] = {}
        self._last_line: int | None = None

    @property
    def count(self) -> int:
        """The number of lines so far, including those still to be judged."""
        return len(self._findings) + sum(map(len, self._scopes))

    def saw(self, program: str, file: str) -> None:
        """Remember the first *file* that configures *program*."""
        self._seen.setdefault(program, file)

    @contextmanager
    def inside(self, around: Value) -> Iterator[None]:
        """Keep the lines of a document inside the text *around* within that text."""
        self._last_line = around.node.end_mark.line + 1
        yield
        self._last_line = None

    def line_of(self, value: Value) -> int:
        line = int(value.node.start_mark.line) + 1
        return line if self._last_line is None else min(line, self._last_line)

    # Findings.

    def add(
        self,
        value: Value,
        written: str,
        verdict: Verdict,
        means: str,
        *,
        program: str = charts.OTHER,
        line: int | None = None,
    ) -> None:
        self._findings.append(
            Finding(
                file=value.file,
                line=line or self.line_of(value),
                program=program,
                written=written,
                verdict=verdict,
                means=means,
            )
        )

    def repeated(self, value: Value, program: str) -> None:
        """Enter the keys that a mapping has twice; the last one counts."""
        for text in value.repeated():
            place, _, means = text.partition(": ")
            line = int(place.rsplit(":", 2)[-2])
            self.add(value, "a repeated key", Verdict.IGNORED, means, program=program, line=line)

    def by_rule(
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
        """Record the effect of *rule* on *value*; *has_value*: the value is shown."""
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
        self._plan.settings |= settings
        self._findings.append(
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

    # Settings of NVIDIA's programs.

    def settings_of_file(self, name: str, settings: list[Setting]) -> None:
        """Enter the *settings* of the configuration file *name*."""
        given = {word: one for setting in settings for word, one in setting.given.items()}
        self._plan.named.setdefault(name, {}).update(given)
        self._scopes.append(settings)

    def settings_of_place(self, scope: list[Setting]) -> None:
        """Enter the settings of one place that is no file, such as a container."""
        self._scopes.append(scope)
        for setting in scope:
            for word, given in setting.given.items():
                before = self._plan.base.get(word)
                if before is not None and before.value != given.value and setting.name.ours:
                    self._findings.append(_contradiction(setting, before, given))
                if before is None or given.place >= before.place:
                    self._plan.base[word] = given

    # The end.

    def report(self) -> Report:
        """Judge all settings, each with those it takes effect with, and return everything."""
        if PLUGIN in self._seen:
            self._findings += missing(self._seen[PLUGIN], self._plan)
            for name, given in defaults().items():
                self._plan.base.setdefault(name, given)
        everywhere = self._plan.base
        for named in self._plan.named.values():
            everywhere = merged(everywhere, named)
        for scope in self._scopes:
            is_file = any(setting.is_kept for setting in scope)
            self._findings += judged(scope, self._plan.base if is_file else everywhere)
        files = {finding.file: at for at, finding in reversed(list(enumerate(self._findings)))}
        self._findings.sort(key=lambda it: (files[it.file], it.line is None, it.line or 0))
        for finding in self._findings:
            if finding.verdict not in LOST:
                self._plan.components.update(finding.components)
        return Report(findings=tuple(self._findings), plan=self._plan)


def _contradiction(setting: Setting, before: Given, given: Given) -> Finding:
    return Finding(
        file=setting.file,
        line=setting.line,
        program=setting.program,
        written=setting.written,
        verdict=Verdict.DIFFERS,
        means=f"set to two values: {before.origin} and {given.origin} say otherwise",
    )


def setting_of(
    *,
    place: tuple[str, int],
    program: str,
    written: str,
    name: Name,
    text: str,
    variable: str | None = None,
) -> Setting:
    """Return the setting of a flag with the value *text*, or of the *variable*.

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


def maybe(word: str, names: Iterable[str]) -> str:
    """Suggest the intended name for a misspelt *word*; empty if none is similar."""
    close = closest(word, names)
    return f": did you mean {close!r}?" if close else ""
