"""The DevicePlugin service of one resource: every answer comes from memory.

The kubelet sets no deadline on Allocate and GetPreferredAllocation and admits one pod at a
time, so a call that waited for the driver or the disk would stop the whole node
(kubernetes issues 117435, 129249, 130855). Only the choice among devices computes; it has a
deadline (:attr:`Deadlines.choice_s`), after which any valid set is the answer, unless a choice of
this size was quick since the last scan (:data:`QUICK_S`). What a choice asks the kubelet itself is
waited for (:mod:`nodetopo.probes.kubelet.gate`).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic, perf_counter
from typing import Any, Protocol, TypeVar

import grpc
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from nodetopo.deviceplugin.allocation_log import (
    AllocationLog,
    Asked,
    Explain,
    LoggedAllocation,
    no_reasons,
)
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.settings import Deadlines, NumaReport
from nodetopo.deviceplugin.stream import DeviceStream
from nodetopo.errors import InputError, UnreadableError
from nodetopo.probes.kubelet.gate import ADMISSIONS

MOST_NAMED = 4
MOST_NAME_CHARS = 80
"""Unknown ids in an error, and characters of each: gRPC carries the text in a header, which has
8 KiB at most."""

MOST_WORKERS = 16
"""As many as gRPC has threads to call from; each call that hangs keeps one."""

QUICK_S = 0.02
"""A choice that took no longer has all that it needs computed: until the next list of devices, the
next ones of its size take microseconds. They run in the call's own thread, because a deadline takes
a second thread, and two more waits for a core on a busy node."""

Prefer = Callable[[Sequence[str], Sequence[str], int], Sequence[str]]
"""(available ids, required ids, size) → the ids to take."""


class InformedPrefer(Struct, frozen=True):
    """A preference that depends on a question to the kubelet."""

    # (available ids, required ids, size): asks. It has no deadline: a question cannot be taken
    # back, so the kubelet's call is answered after it, and never in another thread
    ask: Callable[[Sequence[str], Sequence[str], int], object]
    prefer: Prefer  # computes with the answer

    def __call__(
        self, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        self.ask(available, required, size)
        return self.prefer(available, required, size)


class Answers(Protocol):
    """The hand-over of a resource's devices to containers, which differs by kind."""

    @property
    def numa(self) -> NumaReport:
        """Which NUMA nodes of a device the kubelet is given."""
        ...

    def look(self) -> None:
        """Look up the host's device nodes; called between calls of the kubelet."""
        ...

    def answer(self, devices: Sequence[PluginDevice]) -> pb.ContainerAllocateResponse:
        """Return the container response for *devices*, in their order, without reading files.

        Raises:
            InputError: these devices must not be allocated together.
            UnreadableError: a fact about a device is currently unknown.
        """
        ...


class PluginServicer(service.DevicePluginServicer):
    """Serves one resource's devices; many threads can call every method at once."""

    def __init__(
        self,
        resource: str,
        prefer: Prefer,
        answers: Answers,
        log: FilteringBoundLogger,
        deadlines: Deadlines,
        *,
        explain: Explain = no_reasons,
    ) -> None:
        self._resource = resource
        self._prefer = prefer
        self._answers = answers
        self._log = log
        self._node_lookup_s = deadlines.node_lookup_s
        self._answers.look()
        self._looked_at = monotonic()
        self._allocations = AllocationLog(explain, log, deadlines.log_close_s, resource=resource)
        self._choices = DeadlineExecutor(deadlines.choice_s)
        self._quick = set[int]()  # sizes; replaced at each list of devices
        self._stream = DeviceStream(answers.numa, deadlines.list_interval_s)

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        return self._stream.devices

    @property
    def allocations(self) -> int:
        """How many containers were given devices of the resource."""
        return self._allocations.count

    @property
    def unchosen(self) -> int:
        """How many preferred allocations were any valid set, because none was chosen in time."""
        return self._allocations.unchosen

    @property
    def recent_allocations(self) -> tuple[LoggedAllocation, ...]:
        """The latest allocations with their reasons, oldest first."""
        return self._allocations.recent

    def update(self, devices: Sequence[PluginDevice]) -> bool:
        """Replace the list; return whether it differs, so that watchers get it.

        It also looks up the host's device nodes periodically: the driver creates some on first use.
        """
        if monotonic() - self._looked_at >= self._node_lookup_s:
            self._answers.look()
            self._looked_at = monotonic()
        self._quick = set()  # a scan can replace what choices have computed
        return self._stream.update(devices)

    def hang_up(self) -> None:
        """End the currently open streams; the kubelet can open others."""
        self._stream.hang_up()

    def close(self) -> None:
        """End all streams, every stream opened from now on, and the log of allocations.

        A stream that has not sent the latest list sends it first.
        """
        self._stream.close()
        self._choices.close()
        self._allocations.close()

    def GetDevicePluginOptions(  # noqa: N802 - the service's own name
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        """Announce preferred allocations; no call is needed before a container starts."""
        del request, context
        return pb.DevicePluginOptions(get_preferred_allocation_available=True)

    def ListAndWatch(  # noqa: N802 - the service's own name
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        """Send the whole list, and again after each change, until either side ends."""
        del request
        return self._stream.lists(context)

    def GetPreferredAllocation(  # noqa: N802 - the service's own name
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        """Choose for each container; always a valid answer, because an error rejects the pod."""
        del context
        response = pb.PreferredAllocationResponse()
        is_reserved = any(one.must_include_deviceIDs for one in request.container_requests)
        with ADMISSIONS.choosing(is_reserved=is_reserved, waits=self._report_wait):
            for container in request.container_requests:
                response.container_responses.add(deviceIDs=self._chosen(container))
        return response

    def Allocate(  # noqa: N802 - the service's own name
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        """Return how the containers get to see their devices; an unknown id is an error."""
        with ADMISSIONS.allocating():
            return self._allocated(request, context)

    def PreStartContainer(  # noqa: N802 - the service's own name
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        """Do nothing; the options never request this call."""
        del request, context
        return pb.PreStartContainerResponse()

    def _chosen(self, container: pb.ContainerPreferredAllocationRequest) -> Sequence[str]:
        """Return a valid set for *container*, the best if it can be computed in time."""
        started = perf_counter()
        available = tuple(container.available_deviceIDs)
        required = tuple(container.must_include_deviceIDs)
        size = container.allocation_size
        preferred: list[str] = []
        is_choice = False
        try:
            prefer = self._prefer
            if isinstance(prefer, InformedPrefer):
                prefer.ask(available, required, size)
                prefer = prefer.prefer
            ids = self._choose(prefer, available, required, size)
            preferred = [name for name in ids if isinstance(name, str)]
            is_choice = True
        except TimeoutError as error:
            self._log.error("preferred allocation came too late", problem=str(error))
        except Exception:  # noqa: BLE001 - a fault in the choice must not reject the pod
            self._log.error("preferred allocation failed", exc_info=True)
        chosen = complete(preferred, available=available, required=required, size=size)
        took_ms = round((perf_counter() - started) * 1000, 3)
        asked = Asked(available=available, required=required, size=size, took_ms=took_ms)
        self._allocations.answered(asked, chosen, is_choice=is_choice)
        self._log.debug("preferred allocation chosen", chosen=chosen, took_ms=took_ms)
        return chosen

    def _choose(
        self, prefer: Prefer, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        """Return the choice of *prefer*, with a deadline unless this size is quick."""
        quick = self._quick  # of before the choice: a list can replace it meanwhile
        began = perf_counter()
        if size in quick:
            ids = prefer(available, required, size)
        else:
            ids = self._choices.call(prefer, available, required, size)
        if perf_counter() - began <= QUICK_S:
            quick.add(size)
        else:
            quick.discard(size)
        return ids

    def _report_wait(self, waited_s: float) -> None:
        self._log.warning(
            "preferred allocation waits: the kubelet does not answer a list of its pods",
            waited_s=round(waited_s),
        )

    def _allocated(
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        devices = self._stream.devices
        response = pb.AllocateResponse()
        for container in request.container_requests:
            wanted = set(container.devices_ids)
            unknown = sorted(wanted.difference(device.id for device in devices))
            if unknown:
                names = ", ".join(name[:MOST_NAME_CHARS] for name in unknown[:MOST_NAMED])
                more = len(unknown) - MOST_NAMED
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{self._resource} has no device {names}"
                    + (f" and {more} more" if more > 0 else ""),
                )
            chosen = [device for device in devices if device.id in wanted]
            try:
                answer = self._answers.answer(chosen)
            except InputError as error:
                text = f"{self._resource}: {error}"
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
            except UnreadableError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            response.container_responses.append(answer)
            self._allocations.allocated([device.id for device in chosen])
        return response


def complete(
    chosen: Sequence[str], *, available: Sequence[str], required: Sequence[str], size: int
) -> tuple[str, ...]:
    """Return exactly *size* distinct ids out of *available*, or all if there are fewer.

    *required* is kept first, then *chosen*, then the rest in the order offered. The kubelet
    takes an arbitrary part of an answer that is too long, and fills up an answer that is too
    short with arbitrary devices (kubelet 1.36 pkg/kubelet/cm/devicemanager, devicesToAllocate).
    """
    offered: Collection[str] = dict.fromkeys(available)
    wanted = dict.fromkeys((*required, *chosen, *available))
    return tuple(device for device in wanted if device in offered)[: max(size, 0)]


T = TypeVar("T")


class DeadlineExecutor:
    """Call functions with a deadline of *limit_s* seconds, in threads that are reused.

    Python cannot end a thread. A call that misses the deadline runs to its end unheard, and the
    threads are daemons, so that a call that never ends does not keep the process alive.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._lock = Lock()  # guards the three below
        self._idle: list[SimpleQueue[Any]] = []  # the queue of each thread that waits for a call
        self._count = 0
        self._is_closed = False

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call *function* with a time limit; return its result, or raise its exception."""
        jobs = None
        with self._lock:
            if self._idle:
                jobs = self._idle.pop()
            elif self._count >= MOST_WORKERS:
                raise TimeoutError(f"{MOST_WORKERS} earlier calls have not ended")
            else:
                self._count += 1
        if jobs is None:
            jobs = SimpleQueue()
            try:
                Thread(target=self._work, args=(jobs,), name="deadline call", daemon=True).start()
            except RuntimeError:
                with self._lock:
                    self._count -= 1
                raise
        answers: SimpleQueue[tuple[T | None, Exception | None]] = SimpleQueue()
        jobs.put((function, arguments, answers))
        try:
            answer, problem = answers.get(timeout=self._limit_s)
        except Empty:
            raise TimeoutError(f"no answer within {self._limit_s} s") from None
        if problem is not None:
            raise problem
        return answer  # type: ignore[return-value]  # without a problem it is the function's

    def close(self) -> None:
        """End the threads that wait for a call; each other thread ends with its call."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for jobs in idle:
            jobs.put(None)

    def _work(self, jobs: SimpleQueue[Any]) -> None:
        """Run the calls of one thread, one at a time; ``None`` ends it."""
        while (job := jobs.get()) is not None:
            function, arguments, answers = job
            answer, problem = None, None
            try:
                answer = function(*arguments)
            except Exception as error:  # noqa: BLE001 - raised again where the call was made
                problem = error
            with self._lock:  # before the answer: the caller can call again at once
                if self._is_closed:
                    self._count -= 1
                    jobs.put(None)
                else:
                    self._idle.append(jobs)
            answers.put((answer, problem))
