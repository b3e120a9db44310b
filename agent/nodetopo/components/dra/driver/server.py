"""The socket of our DRA driver in ``plugins_registry``, where the kubelet finds it.

One socket serves both the registration and the driver: without a separate endpoint the kubelet
keeps using the registration socket (1.36
pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go).

Each process has a socket with a unique name, so that two can serve during an upgrade. Since 1.33
the kubelet calls the latest registered and connected one (pkg/kubelet/cm/dra/plugin/
dra_plugin_manager.go), and after its own restart either. So both prepare and release claims; the
process with the newest socket writes slices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

import grpc
import structlog

from nodetopo.components.dra.driver.pb import dra_health_pb2_grpc as health_alpha
from nodetopo.components.dra.driver.pb import dra_health_v1_pb2_grpc as health_v1
from nodetopo.components.dra.driver.pb import dra_pb2_grpc as service
from nodetopo.components.dra.driver.service import (
    SERVICES,
    DeviceHealth,
    DraServicer,
    HealthV1,
    HealthV1Alpha1,
)
from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.host_files import is_directory
from nodetopo.deviceplugin.pb import pluginregistration_pb2 as registration_pb
from nodetopo.deviceplugin.pb import pluginregistration_pb2_grpc as registration
from nodetopo.deviceplugin.peers import Peers
from nodetopo.deviceplugin.server import POOL_THREADS, SOCKET_MODE, Guard
from nodetopo.model.dra import DRIVER

TYPE = "DRAPlugin"
"""The kubelet's name for DRA drivers (k8s.io/kubelet pkg/apis/pluginregistration/v1)."""

OUR_SOCKET = re.compile(rf"{re.escape(DRIVER)}(-[0-9a-f]+)?-reg\.sock")
"""The socket of one of our processes; earlier releases use the name without a number."""

PREPARE_THREADS = 64
"""Of calls to prepare claims, which can wait until others release theirs: eight GPUs have up to 56
MIG devices. All other calls have threads that no call waits in.
"""

FINISH_S = 0.3
"""How long calls can continue at the end: the kubelet retries an aborted one a minute later."""


class DraRegistrar(registration.RegistrationServicer):
    """Answers a kubelet's questions about a new socket."""

    def __init__(self) -> None:
        self.is_registered = False  # the latest kubelet has registered the driver
        self.registrations = 0
        # Reason of its refusal; None before its first answer and after a success.
        self.problem: str | None = None

    def GetInfo(  # noqa: N802 - the service's own name
        self, request: registration_pb.InfoRequest, context: grpc.ServicerContext
    ) -> registration_pb.PluginInfo:
        del request, context
        return registration_pb.PluginInfo(type=TYPE, name=DRIVER, supported_versions=SERVICES)

    def NotifyRegistrationStatus(  # noqa: N802 - the service's own name
        self, request: registration_pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> registration_pb.RegistrationStatusResponse:
        del context
        log = structlog.get_logger()
        self.is_registered = request.plugin_registered
        self.problem = None
        if request.plugin_registered:
            self.registrations += 1
            log.info("DRA driver registered", driver=DRIVER)
        else:
            self.problem = request.error or "no reason given"
            log.error("DRA driver rejected by the kubelet", driver=DRIVER, problem=self.problem)
        return registration_pb.RegistrationStatusResponse()


class DraServer:
    """Serves on a socket in *directory*, from :meth:`keep_up` to :meth:`stop`."""

    def __init__(self, directory: Path, servicer: DraServicer, health: DeviceHealth) -> None:
        self.registrar = DraRegistrar()
        self._path = directory / f"{DRIVER}-{token_hex(3)}-reg.sock"
        self._servicer = servicer
        self._health = health
        self._server: grpc.Server | None = None
        self._pools: tuple[ThreadPoolExecutor, ...] = ()
        self._identity: sockets.Identity | None = None
        self._problem: str | None = None
        self._serials = count()

    @property
    def path(self) -> Path:
        """The socket, which no other process has."""
        return self._path

    @property
    def problem(self) -> str | None:
        """Why the kubelet does not use the driver; ``None`` if it does, or was not asked yet."""
        return self._problem or self.registrar.problem

    def keep_up(self) -> None:
        """Serve, and serve again if the socket file has vanished; a failure is retried."""
        if self._server is not None and self._is_reachable():
            return
        if not is_directory(self._path.parent):
            self._note(
                f"no directory {self._path.parent} — see whether it is the kubelet's, and mounted"
            )
            return
        self.stop()
        self._health.begin()
        # Another name each time: gRPC removes the file of a server that ended by name, and late.
        hidden = self._path.with_name(f"{sockets.HIDDEN}{next(self._serials)}-{self._path.name}")
        try:
            hidden.unlink(missing_ok=True)
            self._serve(hidden)
            hidden.replace(self._path)  # the kubelet sees a socket that answers
        except (OSError, RuntimeError) as error:  # grpcio raises RuntimeError
            self.stop()
            self._note(f"cannot serve on {self._path}: {error}")
            return
        self._identity = sockets.identity(self._path)
        self._problem = None
        structlog.get_logger().info("DRA driver served", socket=str(self._path))

    def newer(self) -> Path | None:
        """Return the socket of our process that began to serve later; ``None`` without one.

        Sockets of ended processes are removed, so that the kubelet forgets them.
        """
        own = self._identity
        if own is None:
            return None
        for path, made in self._others():
            if not sockets.is_listening(path):
                with suppress(OSError):
                    path.unlink()
            elif (made[2], path.name) > (own[2], self._path.name):
                return path
        return None

    def stop(self) -> None:
        """End all calls and remove the socket file unless another process replaced it."""
        server, self._server = self._server, None
        if server is not None:
            if self._is_reachable():
                with suppress(OSError):
                    self._path.unlink()
            self._health.end()
            server.stop(FINISH_S).wait(FINISH_S)
        for pool in self._pools:
            pool.shutdown(wait=False)
        self._pools = ()
        self.registrar.is_registered = False

    def _others(self) -> Iterator[tuple[Path, sockets.Identity]]:
        for path in sockets.all_in(self._path.parent):
            made = sockets.identity(path)
            if path != self._path and OUR_SOCKET.fullmatch(path.name) and made is not None:
                yield path, made

    def _serve(self, path: Path) -> None:
        pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="dra")
        prepare = ThreadPoolExecutor(PREPARE_THREADS, thread_name_prefix="dra prepare")
        self._pools = pool, prepare
        server = grpc.server(pool, interceptors=[Guard(Peers(path)), _Prepare(prepare)])
        registration.add_RegistrationServicer_to_server(self.registrar, server)
        service.add_DRAPluginServicer_to_server(self._servicer, server)
        health_v1.add_DRAResourceHealthServicer_to_server(HealthV1(self._health), server)
        health_alpha.add_DRAResourceHealthServicer_to_server(HealthV1Alpha1(self._health), server)
        self._server = server
        server.add_insecure_port(f"unix://{path.absolute()}")
        server.start()  # gRPC stops only what was started
        path.chmod(SOCKET_MODE)

    def _is_reachable(self) -> bool:
        now = sockets.identity(self._path)
        return now is not None and self._identity is not None and now[:2] == self._identity[:2]

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            structlog.get_logger().warning("DRA driver not served", problem=problem)
        self._problem = problem


class _Prepare(grpc.ServerInterceptor):
    """Has calls to prepare claims run in *pool*."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Pass the call on, with its pool if it is one of these."""
        handler = continuation(details)
        if handler is None or not details.method.endswith("/NodePrepareResources"):
            return handler
        return grpc.unary_unary_rpc_method_handler(
            _Pooled(handler.unary_unary, self._pool),
            handler.request_deserializer,
            handler.response_serializer,
        )


class _Pooled:
    """A method that gRPC runs in a pool of threads for it (grpcio 1.85, grpc/_server.py)."""

    def __init__(self, call: Callable[[Any, Any], Any], pool: ThreadPoolExecutor) -> None:
        self._call = call
        self.experimental_thread_pool = pool

    def __call__(self, request: Any, context: Any) -> Any:
        return self._call(request, context)
