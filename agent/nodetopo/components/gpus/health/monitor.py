"""The current health of this node's GPUs: the ledger, fed by threads and saved in a file."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.components.gpus.health.clearing import (
    ClearedGpu,
    Clearing,
    ClearRequest,
    cleared_notices,
    clearing,
)
from nodetopo.components.gpus.health.ledger import after_events, after_look, after_time, view
from nodetopo.components.gpus.health.notices import notices
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.gpus.health.saved import doubted, forgiven, joined, lasting, resumed
from nodetopo.components.gpus.health.seen import is_over, waits_for_a_reset
from nodetopo.components.gpus.health.state import MAX_GPUS, HealthState
from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.components.gpus.state_files import HealthFile, KnownGpus
from nodetopo.errors import AgentError, UnreadableError
from nodetopo.kernel.settings.kept import health_file
from nodetopo.model.notice import Notice
from nodetopo.model.nvml_event import EventKind, NvmlEvent, NvmlStatus
from nodetopo.model.snapshot import Snapshot
from nodetopo.model.xid import MAX_CODES, RECOVERY_CHANGED, counted_code
from nodetopo.outage import Outage

GPUS_FILE = "gpus.json"
"""Beside the health file: the GPUs that a lost one is listed among."""

UNNAMED = "unknown"
"""In :attr:`GpuHealthMonitor.counts`, a GPU that NVML did not name, and all beyond
:data:`nodetopo.components.gpus.health.state.MAX_GPUS`."""

MAX_NOTICES = 256
"""Notices that wait to be taken; of more the oldest are lost."""

LOOK_PAUSE_S = 5.0
"""Shortest pause before an extra scan: an event storm must not cause constant NVML reads."""

_NOTHING = HealthState()
"""Needs no file."""


class _Waiting(Struct):
    """A request to clear GPUs, until a scan that began after it."""

    request: ClearRequest
    asked_at: float
    answer: Clearing | AgentError | None = None
    done: threading.Event = field(default_factory=threading.Event)


def configured_health(
    settings: GpuSettings, boot_id: str | None, on_change: Callable[[], None]
) -> "GpuHealthMonitor | None":
    """Return the health of the GPUs; ``None`` where *settings* switch it off."""
    if not settings.health_checks:
        return None
    path = health_file(settings)
    return GpuHealthMonitor(
        HealthRules(classes=settings.xid_classes, recovery_s=settings.recovery_s),
        None if path is None else HealthFile(path),
        boot_id=boot_id,
        on_change=on_change,
    )


def configured_gpus(settings: GpuSettings, boot_id: str | None) -> KnownGpus | None:
    """Return the memory of known GPUs; ``None`` where none is kept or the boot is unknown."""
    path = health_file(settings)
    if path is None or boot_id is None:
        return None
    return KnownGpus(path.with_name(GPUS_FILE), boot_id)


class GpuHealthMonitor:
    """Judges events and scans from any thread, and keeps the verdicts ready.

    Args:
        state_file: keeps verdicts across restarts; ``None`` keeps them in memory.
        boot_id: of this boot; ``None`` if unknown, then taken to be the file's boot.
        clock: monotonic seconds since boot, the same in every process.
        on_change: called after :attr:`view` changed, by the thread that changed it.
    """

    def __init__(
        self,
        rules: HealthRules,
        state_file: HealthFile | None,
        *,
        boot_id: str | None,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], None],
    ) -> None:
        self._rules = rules
        self._file = state_file
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._file_lock = threading.Lock()
        saved = None if state_file is None else state_file.load()
        self._since = clock()
        self._state = resumed(saved or HealthState(boot_id=boot_id), boot_id, self._since)
        self._lasting = lasting(self._state)
        self._written = lasting(saved or _NOTHING)
        self._is_written = True
        self._lost = None if state_file is None else state_file.damage
        self._is_loss_told = False
        self._damage = Outage()
        self._fresh_at = self._state.nvml.fresh_at
        self.view = view(self._state)  # the verdicts, by GPU; replaced as a whole, never changed
        self._counts: dict[tuple[str, int], int] = {}
        self._codes: dict[str, set[int]] = {}
        self._judged: set[NvmlEvent] = set()
        self._notices: deque[Notice] = deque(maxlen=MAX_NOTICES)
        self._wanted_at: float | None = None  # when something last happened that a scan explains
        self._looked_at = float("-inf")
        self._waiting: list[_Waiting] = []

    @property
    def counts(self) -> Mapping[tuple[str, int], int]:
        """How often each (GPU, XID) was reported since this process began.

        Of a GPU that reports too many different codes, the rest is counted as XID 0.
        """
        with self._lock:
            return dict(self._counts)

    @property
    def wants_fresh_container(self) -> bool:
        """Whether this process should end so that its container is recreated.

        Only if the file records the request: else every new process would end as well.
        """
        nvml = self._state.nvml
        return nvml.wants_fresh and nvml.fresh_at == self._fresh_at

    @property
    def wants_look(self) -> bool:
        """Whether an early scan could change a GPU's health."""
        return self._wanted_at is not None and self._clock() - self._looked_at >= LOOK_PAUSE_S

    def notices(self) -> tuple[Notice, ...]:
        """Return the notices since the last call, and forget them."""
        with self._lock:
            taken = tuple(self._notices)
            self._notices.clear()
        return taken

    def take_events(self, events: Sequence[NvmlEvent]) -> None:
        """Count *events*, and judge the first of each kind in this second.

        A tick or a look begins another second.
        """
        is_changed = False
        with self._lock:
            fresh = []
            for event in events:
                if event.kind is EventKind.XID and event.xid is not None:
                    gpu = event.gpu or UNNAMED
                    if gpu not in self._codes and len(self._codes) >= MAX_GPUS:
                        gpu = UNNAMED
                    codes = self._codes.setdefault(gpu, set())
                    code = counted_code(event.xid, codes)
                    codes.add(code)
                    self._counts[gpu, code] = self._counts.get((gpu, code), 0) + event.count
                single = replace(event, count=1)  # repeats are judged once
                if single not in self._judged:
                    fresh.append(single)
                    if len(self._judged) < MAX_GPUS * MAX_CODES:
                        self._judged.add(single)
            if fresh:
                before, now = self._lasting, self._clock()
                is_changed = self._become(after_events(self._state, fresh, now, self._rules))
                if (
                    self._lasting != before
                    or any(
                        event.kind is not EventKind.XID or event.xid == RECOVERY_CHANGED
                        for event in fresh
                    )
                    or waits_for_a_reset(self._state, now)
                ):
                    self._wanted_at = now
        if is_changed:
            self._on_change()

    def clear(
        self, request: ClearRequest, scan: Callable[[], None], *, patience_s: float
    ) -> tuple[tuple[ClearedGpu, ...], bool]:
        """End the verdicts that *request* names, together with the next scan.

        *scan* asks for one. The request is withdrawn if none ends within *patience_s*; it is never
        repeated.

        Returns:
            The GPUs, and whether a restart of the process would keep the change.

        Raises:
            InputError: the request cannot be met.
            UnreadableError: no scan ended in time, or NVML gave it no reading.
        """
        waiting = _Waiting(request, self._clock())
        with self._lock:
            self._waiting.append(waiting)
        scan()
        if not waiting.done.wait(patience_s):
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                    cause = f"no scan of the node ended within {patience_s:g} s: nothing cleared"
                    raise UnreadableError(cause, "see /readyz for what is wrong, and repeat")
            waiting.done.wait()
        if isinstance(waiting.answer, AgentError):
            raise waiting.answer
        assert waiting.answer is not None
        return waiting.answer.gpus, self._file is None or self._is_written

    def look(self, snapshot: Snapshot, nvml: NvmlStatus, *, began: float | None = None) -> None:
        """Take the result of a scan: evidence against GPUs, and for them.

        Args:
            began: the start of the scan, by the clock; ``None`` for now. Later events still call
                for another scan, which may show them.
        """
        late, is_pardon = None, False
        if self._file is not None:
            with self._file_lock:
                late, is_pardon = self._file.late(), self._file.was_removed()
        with self._lock:
            self._judged.clear()
            if late is not None:
                self._lost, self._written = None, lasting(late)
                self._state = joined(resumed(late, self._state.boot_id, self._since), self._state)
            before = self._state
            if is_pardon:
                reason = "HealthForgotten"
                message = "the health file was removed: all GPUs are evaluated again"
                self._notices.append(
                    Notice(reason=reason, message=message, is_warning=False, gpu=None, key=reason)
                )
                before = forgiven(before)
            self._looked_at = now = self._clock()
            began = now if began is None else began
            if self._lost is not None:
                self._state = before = self._in_doubt(before, snapshot, nvml, began)
            if self._wanted_at is not None and self._wanted_at <= began:
                self._wanted_at = None
            answered, before = self._cleared(before, snapshot, nvml, began)
            after = after_look(before, snapshot, nvml, now, self._rules, began=began)
            is_changed = self._become(after)
        self._save(is_retry=True)
        for waiting in answered:
            waiting.done.set()
        if is_changed:
            self._on_change()

    def _cleared(
        self, state: HealthState, snapshot: Snapshot, nvml: NvmlStatus, began: float
    ) -> tuple[list[_Waiting], HealthState]:
        """Return the requests that the scan which began at *began* answers, and the new state."""
        due = [waiting for waiting in self._waiting if waiting.asked_at <= began]
        self._waiting = [waiting for waiting in self._waiting if waiting not in due]
        for waiting in due:
            request, now = waiting.request, self._looked_at
            try:
                waiting.answer = clearing(
                    state, request, snapshot, nvml, now=now, began=began, rules=self._rules
                )
            except AgentError as error:
                waiting.answer = error
                continue
            state = waiting.answer.state
            if not request.is_dry_run:
                self._notices.extend(cleared_notices(waiting.answer.gpus))
        return due, state

    def _in_doubt(
        self, state: HealthState, snapshot: Snapshot, nvml: NvmlStatus, began: float
    ) -> HealthState:
        """Return *state* with doubt on every GPU that a damaged health file could have named."""
        names = {gpu.id for gpu in snapshot.gpus if gpu.uuid is not None} | set(state.gpus)
        if names and not self._is_loss_told:
            self._is_loss_told = True
            text = (
                f"the verdicts of the health file are not known ({self._lost}): all GPUs are "
                "Unhealthy until scans have shown no fault for "
                f"{self._rules.recovery_s:g} s"
            )
            self._notices.append(_damaged(text, "start"))
        if names and nvml.trouble is None:
            self._lost = None  # GPUs that appear later come from a reset or a boot
        return doubted(state, sorted(names)[:MAX_GPUS], began)

    def tick(self, *, is_paused: bool = False) -> None:
        """Let time pass, for NVML's deadlines and for events. Once a second is enough.

        While *is_paused*, NVML is closed on request, and none of its deadlines passes.
        """
        with self._lock:
            self._judged.clear()
            now = self._clock()
            after = after_time(self._state, now, self._rules, is_paused=is_paused)
            is_changed = self._become(after)
            if any(
                is_over(fault, record, now, self._rules)
                for record in self._state.gpus.values()
                for fault in record.faults
            ):  # one more scan ends the fault
                self._wanted_at = now
        self._save(is_retry=False)
        if is_changed:
            self._on_change()

    def _become(self, after: HealthState) -> bool:
        """Replace the state with *after*; return whether a verdict changed."""
        self._notices.extend(notices(self._state, after, self._rules))
        self._state, self._lasting = after, lasting(after)
        verdicts = view(after)
        is_changed = verdicts != self.view
        if is_changed:  # an equal view stays the same object: the reconcile loop compares identity
            self.view = verdicts
        return is_changed

    def _save(self, *, is_retry: bool) -> None:
        """Save the state if its durable part changed; after a failure only if *is_retry*."""
        if self._file is None:
            return
        with self._file_lock:
            with self._lock:
                state, now = self._state, self._lasting
            is_kept = self._file.is_there or now == lasting(_NOTHING)
            damage = self._file.damage_since(state) if is_retry else None
            if damage is not None:
                is_kept = False
            if is_retry and self._damage.changed(damage) and damage is not None:
                with self._lock:
                    self._notices.append(_damaged(f"{damage}: it is written again", "meanwhile"))
            if (now == self._written and is_kept) or not (self._is_written or is_retry):
                return
            self._is_written = self._file.save(state)
            if self._is_written:
                self._written, self._fresh_at = now, state.nvml.fresh_at


def _damaged(text: str, when: str) -> Notice:
    reason = "HealthFileDamaged"
    return Notice(reason=reason, message=text, is_warning=True, gpu=None, key=f"{reason} {when}")
