"""The DevicePlugin service of one resource: answers from memory only.

The kubelet sets no deadline on Allocate and GetPreferredAllocation and admits one pod at a
time, so a call that waited for the driver or the disk would stop the whole node
(kubernetes issues 117435, 129249, 130855). The choice among devices is the one thing here
that computes; it is given :data:`CHOICE_LIMIT_S`, then any valid set is the answer.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic, perf_counter
from typing import Any, TypeVar

import grpc
from structlog.typing import FilteringBoundLogger

from agent.deviceplugin.allocation_log import AllocationLog, Asked, Explain, no_reasons
from agent.deviceplugin.devices import PluginDevice
from agent.deviceplugin.host_nodes import present_nodes
from agent.deviceplugin.pb import deviceplugin_pb2 as pb
from agent.deviceplugin.pb import deviceplugin_pb2_grpc as service
from agent.deviceplugin.response import container_response
from agent.deviceplugin.settings import PluginSettings
from agent.deviceplugin.stream import DeviceStream
from agent.errors import UnreadableError

# The last word on a preferred allocation: whatever was chosen, the answer is valid.


def complete(
    chosen: Sequence[str], *, available: Sequence[str], required: Sequence[str], size: int
) -> tuple[str, ...]:
    """Return exactly *size* distinct ids out of *available*, or all where there are fewer.

    *required* is kept first, then *chosen*, then the rest in the order offered. The kubelet
    takes an arbitrary part of an answer that is too long, and fills one that is too short
    with arbitrary devices (kubelet 1.36 pkg/kubelet/cm/devicemanager, devicesToAllocate).
    """
    offered: Collection[str] = dict.fromkeys(available)
    wanted = dict.fromkeys((*required, *chosen, *available))
    return tuple(device for device in wanted if device in offered)[: max(size, 0)]


# A function that is given so much time and no more, so that its caller can always answer.

T = TypeVar("T")


MOST_WORKERS = 16
"""As many as gRPC has threads to call from; each call that hangs keeps one."""


class Timely:
    """Call functions in threads of its own, which are kept for the next call.

    Python cannot end a thread. A call that came too late goes on to its end unheard, and the
    threads are daemons, so that one that never ends does not keep the process.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._lock = Lock()  # guards the three below
        self._idle: list[_Worker] = []
        self._count = 0
        self._is_closed = False

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what *function* returns, or raise what it raises.

        Raises:
            TimeoutError: it took longer than the limit, or too many earlier calls still do.
            RuntimeError: no thread is to be had.
        """
        answers: SimpleQueue[tuple[T | None, Exception | None]] = SimpleQueue()
        self._worker().jobs.put((function, arguments, answers))
        try:
            answer, problem = answers.get(timeout=self._limit_s)
        except Empty:
            raise TimeoutError(f"no answer within {self._limit_s} s") from None
        if problem is not None:
            raise problem
        return answer  # type: ignore[return-value]  # one of the two is what the function gave

    def close(self) -> None:
        """End the threads that wait for a call; each other one ends with its call."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            self._end(worker)

    def _worker(self) -> "_Worker":
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if self._count >= MOST_WORKERS:
                raise TimeoutError(f"{MOST_WORKERS} earlier calls have not ended")
            self._count += 1
        try:
            return _Worker(self._take_back)
        except RuntimeError:
            with self._lock:
                self._count -= 1
            raise

    def _take_back(self, worker: "_Worker") -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(worker)
                return
        self._end(worker)

    def _end(self, worker: "_Worker") -> None:
        with self._lock:
            self._count -= 1
        worker.jobs.put(None)


class _Worker:
    """One thread, and the calls that it is given: one at a time, ``None`` for the end."""

    def __init__(self, take_back: Callable[["_Worker"], None]) -> None:
        self.jobs: SimpleQueue[Any] = SimpleQueue()
        self._take_back = take_back
        Thread(target=self._run, name="timely call", daemon=True).start()

    def _run(self) -> None:
        while (job := self.jobs.get()) is not None:
            function, arguments, answers = job
            answer, problem = None, None
            try:
                answer = function(*arguments)
            except Exception as error:  # noqa: BLE001 - raised again where the call was made
                problem = error
            self._take_back(self)  # before the answer: who has it may call at once
            answers.put((answer, problem))


CHOICE_LIMIT_S = 1.0
"""What a choice may take before the kubelet, and every pod behind this one, is answered."""


NODES_S = 1.0
"""How long the host's device nodes are taken as seen: a storm of changes of health must not
become one of file look-ups."""


MOST_NAMED = 4


MOST_NAME_CHARS = 80
"""Of unknown ids in an error: gRPC carries its text in a header, which has 8 KiB at most."""


Prefer = Callable[[Sequence[str], Sequence[str], int], Sequence[str]]
"""(available ids, required ids, size) → the ids to take."""


class GpuServicer(service.DevicePluginServicer):
    """Serve one resource's devices; every method may be called from many threads at once."""

    def __init__(
        self,
        resource: str,
        prefer: Prefer,
        settings: PluginSettings,
        log: FilteringBoundLogger,
        *,
        explain: Explain = no_reasons,
    ) -> None:
        self._resource = resource
        self._prefer = prefer
        self._settings = settings
        self._log = log
        self._present_nodes = present_nodes(settings)
        self._nodes_seen_at = monotonic()
        self._allocations = AllocationLog(explain, log)
        self._choices = Timely(CHOICE_LIMIT_S)
        self._stream = DeviceStream(settings.numa)

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        """The list as last taken by :meth:`update`; empty before."""
        return self._stream.devices

    @property
    def allocations(self) -> int:
        """How many containers were given devices of the resource."""
        return self._allocations.count

    @property
    def refusal(self) -> str | None:
        """Why the last list given to :meth:`update` was not taken; ``None`` if it was."""
        return self._stream.refusal

    def update(self, devices: Sequence[PluginDevice]) -> bool:
        """Replace the list; return whether watchers learn of it, because it differs.

        The host's device nodes are looked up here as well, now and then: the driver makes some
        on first use.
        """
        if monotonic() - self._nodes_seen_at >= NODES_S:
            self._present_nodes = present_nodes(self._settings)
            self._nodes_seen_at = monotonic()
        return self._stream.update(devices)

    def hang_up(self) -> None:
        """End the streams that are open now; the kubelet may open others."""
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
        """Announce preferred allocations; nothing has to happen before a container starts."""
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
        return pb.PreferredAllocationResponse(
            container_responses=(
                pb.ContainerPreferredAllocationResponse(deviceIDs=self._preferred(container))
                for container in request.container_requests
            )
        )

    def Allocate(  # noqa: N802 - the service's own name
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        """Say how the containers get to see their devices; an unknown id is an error."""
        devices = self._stream.devices
        response = pb.AllocateResponse()
        for container in request.container_requests:
            wanted = set(container.devices_ids)
            unknown = wanted.difference(device.id for device in devices)
            if unknown:
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{self._resource} has no device {_named(unknown)}",
                )
            chosen = [device for device in devices if device.id in wanted]
            if self._settings.fails_requests_greater_than_one and _are_replicas(chosen):
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{self._resource} is shared, and {len(chosen)} of it are no more of a GPU "
                    "than 1: failRequestsGreaterThanOne is set, so ask for 1",
                )
            try:
                answer = container_response(chosen, self._settings, self._present_nodes)
            except UnreadableError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            response.container_responses.append(answer)
            self._allocations.allocated([device.id for device in chosen])
        return response

    def PreStartContainer(  # noqa: N802 - the service's own name
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        """Do nothing; the options never ask for this call."""
        del request, context
        return pb.PreStartContainerResponse()

    def _preferred(self, asked: pb.ContainerPreferredAllocationRequest) -> tuple[str, ...]:
        started = perf_counter()
        available = tuple(asked.available_deviceIDs)
        required = tuple(asked.must_include_deviceIDs)
        size = asked.allocation_size
        wish = self._wish(available, required, size)
        chosen = complete(wish, available=available, required=required, size=size)
        took_ms = round((perf_counter() - started) * 1000, 3)
        self._allocations.answered(
            Asked(available=available, required=required, size=size, took_ms=took_ms), chosen
        )
        self._log.debug("preferred allocation chosen", chosen=chosen, took_ms=took_ms)
        return chosen

    def _wish(self, available: tuple[str, ...], required: tuple[str, ...], size: int) -> list[str]:
        """Return what is preferred; nothing, where that fails or takes too long."""
        try:
            return _texts(self._choices.call(self._prefer, available, required, size))
        except TimeoutError as error:
            self._log.error("preferred allocation came too late", problem=str(error))
        except Exception:  # noqa: BLE001 - a fault in the choice must not reject the pod
            self._log.error("preferred allocation failed", exc_info=True)
        return []


def _texts(wish: Iterable[object]) -> list[str]:
    """Return the texts of *wish*: whatever else a faulty choice holds is no id."""
    return [one for one in wish if isinstance(one, str)]


def _named(unknown: Iterable[str]) -> str:
    """Return *unknown* as an error can hold them: a few, and none without end."""
    names = sorted(unknown)
    shown = [name[:MOST_NAME_CHARS] for name in names[:MOST_NAMED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _are_replicas(devices: Sequence[PluginDevice]) -> bool:
    """Tell whether there are several, and replicas among them."""
    return len(devices) > 1 and any(device.is_replica for device in devices)
