"""How a kubelet learns of a plugin, and the one call for it that a plugin makes."""

from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any

import grpc

from agent.deviceplugin.pb import deviceplugin_pb2 as pb
from agent.deviceplugin.pb import deviceplugin_pb2_grpc as service
from agent.errors import UnreadableError

VERSION = "v1beta1"
"""The only version of the device plugin API that kubelets since 1.10 accept."""

DEADLINE_S = 12.0
"""The kubelet dials the plugin inside the call and gives that 10 s (1.36 plugin/v1beta1)."""

CHANNEL_OPTIONS = (
    # What the kubelet itself sends over a unix socket; a path would not be a valid authority.
    ("grpc.default_authority", "localhost"),
    # Channels to one address share their connection's back-off otherwise, so that a new
    # channel to a kubelet just restarted would wait out the old one's.
    ("grpc.use_local_subchannel_pool", 1),
)


class Registration(StrEnum):
    """By which way a kubelet learns of a resource.

    ``socket``: we call the kubelet on ``kubelet.sock``. ``watcher``: it finds our socket in its
    directory ``plugins_registry`` and asks. ``both``: either, whichever comes first.
    """

    SOCKET = "socket"
    WATCHER = "watcher"
    BOTH = "both"


class Registrar:
    """Call Register; :meth:`cancel` from another thread ends a call that hangs."""

    def __init__(self, kubelet_socket: Path) -> None:
        self._target = f"unix://{kubelet_socket.absolute()}"
        self._lock = Lock()
        self._call: Any = None  # grpcio's future has no public type
        self._is_cancelled = False

    def register(self, resource: str, endpoint: str) -> bool:
        """Register *resource* under the socket file name *endpoint*.

        Return whether that is news to the kubelet: since 1.37 it refuses a second registration
        of a socket that it is connected to.

        Raises:
            UnreadableError: the kubelet did not accept, with its words; or cancelled.
        """
        with grpc.insecure_channel(self._target, options=CHANNEL_OPTIONS) as channel:
            with self._lock:
                if self._is_cancelled:
                    raise UnreadableError("registration cancelled")
                self._call = service.RegistrationStub(channel).Register.future(
                    pb.RegisterRequest(
                        version=VERSION,
                        endpoint=endpoint,
                        resource_name=resource,
                        options=pb.DevicePluginOptions(get_preferred_allocation_available=True),
                    ),
                    timeout=DEADLINE_S,
                )
            problem = _problem(self._call)
        if problem is None:
            return True
        if "already connected" in problem:
            return False
        raise UnreadableError(
            f"the kubelet did not register {resource}: {problem}",
            "see whether the kubelet runs, and its log",
        )

    def cancel(self) -> None:
        """End the current call, and refuse every later one."""
        with self._lock:
            self._is_cancelled = True
            if self._call is not None:
                self._call.cancel()


def _problem(call: Any) -> str | None:
    """Wait for *call*; return what went wrong in the words of gRPC, or ``None``."""
    try:
        call.result()
    except grpc.FutureCancelledError:
        return "cancelled"
    except grpc.RpcError:
        return f"{call.code().name}: {call.details()}"
    return None


class Backoff:
    """Delays between attempts, doubling from *first_s* to *last_s*."""

    def __init__(self, first_s: float = 0.2, last_s: float = 30.0) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._next_s = first_s

    @property
    def last_s(self) -> float:
        """The longest delay."""
        return self._last_s

    def delay(self) -> float:
        """Return the seconds to wait before the next attempt."""
        delay, self._next_s = self._next_s, min(self._next_s * 2, self._last_s)
        return delay

    def reset(self) -> None:
        """Begin with the shortest delay again."""
        self._next_s = self._first_s
