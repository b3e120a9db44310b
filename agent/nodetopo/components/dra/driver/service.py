"""The gRPC services of our DRA driver: prepare and unprepare claims, and health of devices.

Kubelet 1.36: pkg/kubelet/cm/dra/manager.go calls prepare for all claims of a pod and driver at
once, before any container starts, and waits 45 s; an error makes it try again later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Condition, Lock
from time import time
from types import ModuleType
from typing import Any, TypeAlias

import grpc
import structlog
from msgspec import Struct

from nodetopo.components.dra.driver.claims import ClaimReference
from nodetopo.components.dra.driver.pb import dra_health_pb2, dra_health_v1_pb2
from nodetopo.components.dra.driver.pb import dra_health_pb2_grpc as health_alpha
from nodetopo.components.dra.driver.pb import dra_health_v1_pb2_grpc as health_v1
from nodetopo.components.dra.driver.pb import dra_pb2 as pb
from nodetopo.components.dra.driver.pb import dra_pb2_grpc as service
from nodetopo.components.dra.driver.prepared import PreparedClaims
from nodetopo.errors import AgentError

SERVICES = ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""Our services, as a kubelet compares them (k8s.io/kubelet pkg/apis/dra/v1 types.go). A kubelet
uses the newest health service that it knows: v1alpha1 up to 1.36, v1 since 1.37, and from 1.40 on
no other (1.37 pkg/kubelet/cm/dra/plugin/dra_plugin.go).
"""

REPEAT_S = 10.0
"""Interval for repeating unchanged health: three times before a kubelet calls it Unknown (1.36
pkg/kubelet/cm/dra/healthinfo.go, DefaultHealthTimeout: 30 s).
"""

LONGEST_MESSAGE = 1000
"""Characters; a kubelet cuts at 1024."""


class DraServicer(service.DRAPluginServicer):
    """Answers the kubelet from the prepared claims."""

    def __init__(self, prepared: PreparedClaims) -> None:
        self._prepared = prepared
        self._calls = 0
        self._counting = Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a call is in progress, which can prepare or release more claims."""
        return self._calls > 0

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._counting:
            self._calls += 1
        try:
            yield
        finally:
            with self._counting:
                self._calls -= 1

    def NodePrepareResources(  # noqa: N802 - the service's own name
        self, request: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        """Prepare each claim separately: a failing claim does not block the others."""
        response = pb.NodePrepareResourcesResponse()
        until = self._prepared.deadline(context.time_remaining())
        with self._counted():
            for asked in request.claims:
                self._prepare(_reference(asked), response, until)
        return response

    def NodeUnprepareResources(  # noqa: N802 - the service's own name
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """Give each claim up; a claim that was never prepared is a success, too."""
        del context
        response = pb.NodeUnprepareResourcesResponse()
        with self._counted():
            for asked in request.claims:
                self._unprepare(_reference(asked), response)
        return response

    def _prepare(
        self, claim: ClaimReference, response: pb.NodePrepareResourcesResponse, until: float
    ) -> None:
        log = structlog.get_logger()
        answer = response.claims[claim.uid]
        try:
            prepared = self._prepared.prepare(claim, until)
        except AgentError as error:
            log.warning("claim not prepared", claim=str(claim), problem=str(error))
            answer.error = str(error)
            return
        for device in prepared.devices:
            answer.devices.add(
                # The kubelet compares with the names of requests, without subrequests.
                request_names=[device.request.partition("/")[0]],
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=device.cdi,
            )
        devices = [device.device for device in prepared.devices]
        log.info("claim prepared", claim=str(claim), uid=claim.uid, devices=devices)

    def _unprepare(
        self, claim: ClaimReference, response: pb.NodeUnprepareResourcesResponse
    ) -> None:
        answer = response.claims[claim.uid]
        try:
            was_prepared = self._prepared.unprepare(claim.uid)
        except AgentError as error:
            answer.error = str(error)
            return
        structlog.get_logger().info(
            "claim given up", claim=str(claim), uid=claim.uid, was_prepared=was_prepared
        )


class DeviceVerdict(Struct, frozen=True, kw_only=True):
    """The health of one device; *message* is for a person, empty for a sound one."""

    is_healthy: bool
    message: str = ""


Verdicts: TypeAlias = Mapping[str, DeviceVerdict]
"""By the device's name."""


class DeviceHealth:
    """The health of every device, sent whenever it changes and before it would be outdated."""

    def __init__(self, pool: str, clock: Callable[[], float] = time) -> None:
        """Send nothing before :meth:`update`; *clock* returns seconds since 1970."""
        self._pool = pool
        self._clock = clock
        self._changed = Condition()
        self._verdicts: Verdicts = {}
        self._generation = 0
        self._is_ended = False

    def begin(self) -> None:
        self._is_ended = False

    def end(self) -> None:
        """End every stream, which would otherwise last as long as its client."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def update(self, verdicts: Verdicts) -> None:
        """Send *verdicts* from now on."""
        with self._changed:
            if verdicts != self._verdicts:
                self._verdicts = verdicts
                self._generation += 1
                self._changed.notify_all()

    def stream(self, messages: ModuleType, context: grpc.ServicerContext) -> Iterator[Any]:
        """Yield responses of one version, *messages*, until the client leaves."""

        def has_ended() -> bool:
            return self._is_ended or not context.is_active()

        is_open = context.add_callback(self._wake)
        sent = 0
        while is_open and not has_ended():
            with self._changed:
                before = sent
                self._changed.wait_for(
                    lambda: self._generation != before or has_ended(),  # noqa: B023
                    REPEAT_S if sent else None,
                )
                sent, verdicts = self._generation, self._verdicts
            if not has_ended():
                yield self._response(messages, verdicts)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _response(self, messages: Any, verdicts: Verdicts) -> Any:
        now = int(self._clock())
        response = messages.NodeWatchResourcesResponse()
        for name, verdict in verdicts.items():
            response.devices.add(
                device=messages.DeviceIdentifier(pool_name=self._pool, device_name=name),
                health=messages.HEALTHY if verdict.is_healthy else messages.UNHEALTHY,
                last_updated_time=now,
                message=verdict.message[:LONGEST_MESSAGE],
            )
        return response


class HealthV1(health_v1.DRAResourceHealthServicer):
    """Serves *health* to kubelets since 1.37."""

    def __init__(self, health: DeviceHealth) -> None:
        self._health = health

    def NodeWatchResources(  # noqa: N802 - the service's own name
        self,
        request: dra_health_v1_pb2.NodeWatchResourcesRequest,
        context: grpc.ServicerContext,
    ) -> Iterator[dra_health_v1_pb2.NodeWatchResourcesResponse]:
        """Stream until the client leaves."""
        del request
        return self._health.stream(dra_health_v1_pb2, context)


class HealthV1Alpha1(health_alpha.DRAResourceHealthServicer):
    """Serves *health* to kubelets up to 1.36."""

    def __init__(self, health: DeviceHealth) -> None:
        self._health = health

    def NodeWatchResources(  # noqa: N802 - the service's own name
        self,
        request: dra_health_pb2.NodeWatchResourcesRequest,
        context: grpc.ServicerContext,
    ) -> Iterator[dra_health_pb2.NodeWatchResourcesResponse]:
        del request
        return self._health.stream(dra_health_pb2, context)


def _reference(asked: pb.Claim) -> ClaimReference:
    return ClaimReference(uid=asked.uid, namespace=asked.namespace, name=asked.name)
