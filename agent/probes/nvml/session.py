"""Ask NVML one thing at a time, so that one refusal costs one fact and nothing else."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.model.snapshot import ProbeIssue


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call gave.

    Attributes:
        value: ``None`` if there is none.
        is_absent: the node or its driver lacks the thing itself, which is a fact, no fault.
        code: the ``nvmlReturn_t`` if it was not SUCCESS.
    """

    value: Any = None
    is_absent: bool = False
    code: int | None = None


class Session:
    """One visit to NVML: everybody who asks in it, what was refused and how often it was called."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.calls = 0
        self._noted: list[Asker] = []

    def asker(self, subject: str, *, is_silent: bool = False) -> "Asker":
        """Return one who asks about *subject*; what a silent one is refused is no issue."""
        asker = Asker(self, subject)
        if not is_silent:
            self._noted.append(asker)
        return asker

    @property
    def issues(self) -> tuple[ProbeIssue, ...]:
        """What was refused, in the order of :func:`in_order`."""
        return in_order(issue for asker in self._noted for issue in asker.issues)

    def was_asked(self, issue: ProbeIssue) -> bool:
        """Return whether *issue* comes from a call that this visit made too."""
        return any(asker.was_asked(issue) for asker in self._noted)


class Asker:
    """Asks NVML about one subject and keeps what it refused.

    Once NVML says GPU_IS_LOST nothing more is asked: further calls would repeat it at best,
    and wait for dead hardware at worst.
    """

    def __init__(self, session: Session, subject: str) -> None:
        self.nvml = session.nvml
        self.is_lost = False
        self._session = session
        self._subject = subject
        self._asked: set[str] = set()
        self._codes: dict[str, int] = {}
        self._refusals: dict[tuple[str, str], list[int]] = {}
        self._absent = (self.nvml.NVML_ERROR_NOT_SUPPORTED, self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    @property
    def issues(self) -> tuple[ProbeIssue, ...]:
        """What was refused, in order, the links of one call and reason taken together."""
        return tuple(
            ProbeIssue.of_call(self._subject, what, reason, links=links)
            for (what, reason), links in self._refusals.items()
        )

    def was_asked(self, issue: ProbeIssue) -> bool:
        """Return whether *issue* is about something that was asked here."""
        return issue.device == self._subject and issue.call in self._asked

    def refusal(self, what: str) -> int | None:
        """Return the ``nvmlReturn_t`` that *what* was last refused with; ``None`` if it was not."""
        return self._codes.get(what)

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
        self._asked.add(call)
        if self.is_lost:
            return Answer()
        self._session.calls += 1
        try:
            value = getattr(self.nvml, call)(*args)
            return Answer(value if convert is None else convert(value))
        except self.nvml.NVMLError as error:
            return self._refused(call, error.value, absent=absent, link=link)
        except ValueError as error:  # also text that is not UTF-8
            return self._unusable(call, error, link=link)

    def fields(self, handle: Any, wanted: Sequence[tuple[int, int]]) -> list[Any]:
        """Return ``nvmlFieldValue_t`` of the fields (id, scope), read in one call; None if refused.

        A field that fails has its own return code (:meth:`field_value`). A refusal of the whole
        call counts against each field.
        """
        for field, _ in wanted:
            self._asked.add(_named(field))
        if self.is_lost or not wanted:
            return [None] * len(wanted)
        self._session.calls += 1
        try:
            return list(self.nvml.nvmlDeviceGetFieldValues(handle, list(wanted)))
        except self.nvml.NVMLError as error:
            for field in dict.fromkeys(field for field, _ in wanted):
                self._refused(_named(field), error.value)
            return [None] * len(wanted)

    def field_value(
        self,
        field: Any,
        convert: Callable[[Any], int],
        *,
        link: int | None = None,
    ) -> int | None:
        """Return the number in an ``nvmlFieldValue_t``, if it is there and usable.

        Drivers answer INVALID_ARGUMENT for a field that they do not know yet.
        """
        if field is None:
            return None
        what = _named(field.fieldId)
        if field.nvmlReturn != self.nvml.NVML_SUCCESS:
            absent = (self.nvml.NVML_ERROR_INVALID_ARGUMENT,)
            self._refused(what, field.nvmlReturn, absent=absent, link=link)
            return None
        try:
            return convert(field)
        except ValueError as error:
            self._unusable(what, error, link=link)
            return None

    def _refused(
        self,
        what: str,
        code: int,
        *,
        absent: Sequence[int] = (),
        link: int | None = None,
    ) -> Answer:
        """Judge the return code *code*, which is not SUCCESS."""
        if code in self._absent or code in absent:
            return Answer(is_absent=True, code=code)
        self._codes[what] = code
        self.is_lost |= code == self.nvml.NVML_ERROR_GPU_IS_LOST
        self._note(what, str(self.nvml.NVMLError(code)), link)
        return Answer(code=code)

    def _unusable(self, what: str, error: ValueError, *, link: int | None = None) -> Answer:
        """Record that a call succeeded with a value that means nothing."""
        self._note(what, f"unusable answer: {error}", link)
        return Answer()

    def _note(self, what: str, reason: str, link: int | None) -> None:
        links = self._refusals.setdefault((what, reason), [])
        if link is not None:
            links.append(link)


def in_order(issues: Iterable[ProbeIssue]) -> tuple[ProbeIssue, ...]:
    """Return *issues* once each: the system's, then every GPU's, then every pair's; then by text.

    The order depends on nothing but the issues, so that two readings of a node that stays the
    same are equal, however each of them was put together.
    """
    return tuple(sorted(set(issues), key=_place))


def _place(issue: ProbeIssue) -> tuple[int, tuple[int, ...], str, str]:
    return len(issue.gpus), issue.gpus, issue.subject, issue.reason


def _named(field: int) -> str:
    return f"nvmlDeviceGetFieldValues field {field}"
