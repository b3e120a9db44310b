"""Ask NVML one thing at a time, so that one refusal costs one fact and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.model.numa import CpuSet
from agent.model.snapshot import ProbeIssue


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call gave.

    Attributes:
        value: ``None`` if there is none.
        is_absent: the node or its driver lacks the thing itself, which is a fact, no fault.
    """

    value: Any = None
    is_absent: bool = False


class Asker:
    """Asks NVML about one subject and keeps what it refused.

    Once NVML says GPU_IS_LOST nothing more is asked: further calls would repeat it at best,
    and wait for dead hardware at worst.
    """

    def __init__(self, nvml: Any, subject: str) -> None:
        self.nvml = nvml
        self.is_lost = False
        self.missing: set[str] = set()
        self._subject = subject
        self._refusals: dict[tuple[str, str], list[int]] = {}
        self._absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    @property
    def issues(self) -> tuple[ProbeIssue, ...]:
        """What was refused, in order, the links of one call and reason taken together."""
        return tuple(
            ProbeIssue(probe="nvml", subject=f"{self._subject} {call}{_on(links)}", reason=reason)
            for (call, reason), links in self._refusals.items()
        )

    def ask(self, call: str, *args: Any, convert: Callable[[Any], Any] | None = None) -> Any | None:
        """Return what pynvml's function *call* gives, converted; ``None`` if nothing usable."""
        return self.answer(call, *args, convert=convert).value

    def answer(
        self,
        call: str,
        *args: Any,
        convert: Callable[[Any], Any] | None = None,
        absent: Sequence[int] = (),
        link: int | None = None,
    ) -> Answer:
        """Call pynvml's function *call*; a refusal becomes an issue.

        Args:
            absent: return codes that mean "there is none", besides NOT_SUPPORTED and a
                function that this driver's library does not have.
            link: the NVLink asked about, named in the issue.
        """
        if self.is_lost:
            return Answer()
        try:
            value = getattr(self.nvml, call)(*args)
            return Answer(value if convert is None else convert(value))
        except self.nvml.NVMLError as error:
            return self.refused(call, error.value, absent=absent, link=link)
        except ValueError as error:  # also text that is not UTF-8
            return self.unusable(call, error, link=link)

    def refused(
        self,
        call: str,
        code: int,
        *,
        absent: Sequence[int] = (),
        link: int | None = None,
    ) -> Answer:
        """Judge the return code *code*, which is not SUCCESS."""
        if code == self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            self.missing.add(call)
        if code in self._absent or code in absent:
            return Answer(is_absent=True)
        self.is_lost = code == self.nvml.NVML_ERROR_GPU_IS_LOST
        self._note(call, str(self.nvml.NVMLError(code)), link)
        return Answer()

    def unusable(self, call: str, error: ValueError, *, link: int | None = None) -> Answer:
        """Record that *call* succeeded with a value that means nothing."""
        self._note(call, f"unusable answer: {error}", link)
        return Answer()

    def _note(self, call: str, reason: str, link: int | None) -> None:
        links = self._refusals.setdefault((call, reason), [])
        if link is not None:
            links.append(link)


def _on(links: Sequence[int]) -> str:
    if not links:
        return ""
    return f" link{'s' if len(links) > 1 else ''} {CpuSet.of(links)}"
