"""Calls to NVML, one fact at a time, so that a refused call costs only one fact."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.nvml import values


class Reply(Struct, frozen=True):
    """The outcome of one call."""

    value: Any = None  # ``None`` if there is none
    # The node or its driver lacks the thing itself, which is a fact, not a fault.
    is_absent: bool = False
    code: int | None = None  # the ``nvmlReturn_t`` if it was not SUCCESS


class Session:
    """One initialised NVML: its callers, their issues, and the number of calls."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.calls = 0
        self._callers: list[Caller] = []

    def caller(self, subject: str, *, is_silent: bool = False) -> "Caller":
        """Return a caller for *subject*; refusals of a silent one are no issues."""
        caller = Caller(self, subject)
        if not is_silent:
            self._callers.append(caller)
        return caller

    @property
    def issues(self) -> tuple[ProbeIssue, ...]:
        """The refusals, in the order of :func:`in_order`."""
        return in_order(issue for caller in self._callers for issue in caller.issues)

    def has_asked(self, issue: ProbeIssue) -> bool:
        """Return whether this session has made the call of *issue*."""
        return any(caller.has_asked(issue) for caller in self._callers)


class Caller:
    """Calls NVML about one subject and records refusals.

    After GPU_IS_LOST no further calls are made: they would repeat it at best, and wait for dead
    hardware at worst.
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
        """The refusals in order; links with the same call and reason share one issue."""
        return tuple(
            ProbeIssue.of_call(self._subject, call, reason, links=links)
            for (call, reason), links in self._refusals.items()
        )

    def has_asked(self, issue: ProbeIssue) -> bool:
        """Return whether *issue* is about a call that this caller has made."""
        return issue.device == self._subject and issue.call in self._asked

    def refusal(self, call: str) -> int | None:
        """Return the last ``nvmlReturn_t`` that refused *call*; ``None`` if none did."""
        return self._codes.get(call)

    def get(self, call: str, *args: Any, convert: Callable[[Any], Any] | None = None) -> Any | None:
        """Return the converted result of pynvml's function *call*; ``None`` if unusable."""
        return self.call(call, *args, convert=convert).value

    def call(
        self,
        call: str,
        *args: Any,
        convert: Callable[[Any], Any] | None = None,
        absent: Sequence[int] = (),
        link: int | None = None,
    ) -> Reply:
        """Call pynvml's function *call*; a refusal becomes an issue.

        Args:
            absent: return codes that mean "there is none", besides NOT_SUPPORTED and a
                function that this driver's library does not have.
            link: the number of the NVLink, named in the issue.
        """
        self._asked.add(call)
        if self.is_lost:
            return Reply()
        self._session.calls += 1
        try:
            value = getattr(self.nvml, call)(*args)
            return Reply(value if convert is None else convert(value))
        except self.nvml.NVMLError as error:
            return self._refused(call, error.value, absent=absent, link=link)
        except ValueError as error:  # also text that is not UTF-8
            self._note(call, f"unusable answer: {error}", link)
            return Reply()

    def field(self, handle: Any, field: int) -> int | None:
        """Return the number in one field of a device, as :meth:`fields` and :meth:`number`."""
        return self.number(self.fields(handle, [(field, 0)])[0])

    def fields(self, handle: Any, wanted: Sequence[tuple[int, int]]) -> list[Any]:
        """Read the ``nvmlFieldValue_t`` of the fields (id, scope) in one call; None if refused.

        A field that fails has its own return code (:meth:`number`). A refusal of the whole
        call counts against each field.
        """
        for field, _ in wanted:
            self._asked.add(_field_name(field))
        if self.is_lost or not wanted:
            return [None] * len(wanted)
        self._session.calls += 1
        try:
            return list(self.nvml.nvmlDeviceGetFieldValues(handle, list(wanted)))
        except self.nvml.NVMLError as error:
            for field in dict.fromkeys(field for field, _ in wanted):
                self._refused(_field_name(field), error.value)
            return [None] * len(wanted)

    def number(self, field: Any, *, link: int | None = None) -> int | None:
        """Return the number in an ``nvmlFieldValue_t``, if it is there and usable.

        Drivers answer INVALID_ARGUMENT for a field that they do not know yet.
        """
        if field is None:
            return None
        name = _field_name(field.fieldId)
        if field.nvmlReturn != self.nvml.NVML_SUCCESS:
            absent = (self.nvml.NVML_ERROR_INVALID_ARGUMENT,)
            self._refused(name, field.nvmlReturn, absent=absent, link=link)
            return None
        try:
            return values.field_value(field)
        except ValueError as error:
            self._note(name, f"unusable answer: {error}", link)
            return None

    def _refused(
        self, call: str, code: int, *, absent: Sequence[int] = (), link: int | None = None
    ) -> Reply:
        """Record the return code *code*, which is not SUCCESS."""
        if code in self._absent or code in absent:
            return Reply(is_absent=True, code=code)
        self._codes[call] = code
        self.is_lost |= code == self.nvml.NVML_ERROR_GPU_IS_LOST
        self._note(call, str(self.nvml.NVMLError(code)), link)
        return Reply(code=code)

    def _note(self, call: str, reason: str, link: int | None) -> None:
        links = self._refusals.setdefault((call, reason), [])
        if link is not None:
            links.append(link)


def in_order(issues: Iterable[ProbeIssue]) -> tuple[ProbeIssue, ...]:
    """Return *issues* once each: the system's, then each GPU's, then each pair's; then by text.

    The order depends on the issues alone, so that two readings of an unchanged node are equal
    however each of them was put together.
    """

    def key(issue: ProbeIssue) -> tuple[int, tuple[int, ...], str, str]:
        return len(issue.gpus), issue.gpus, issue.subject, issue.reason

    return tuple(sorted(set(issues), key=key))


def _field_name(field: int) -> str:
    return f"nvmlDeviceGetFieldValues field {field}"
