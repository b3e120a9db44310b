"""The gRPC services of our DRA driver: prepare and unprepare claims, and health of devices.

Kubelet 1.36: pkg/kubelet/cm/dra/manager.go calls prepare for all claims of a pod and driver at
once, before any container starts, and waits 45 s; an error makes it try again later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Condition
from time import time
from typing import TypeAlias

import grpc
import structlog

from agent.draplugin.claims import ClaimReference
from agent.draplugin.pb import dra_health_pb2 as health_pb
from agent.draplugin.pb import dra_health_pb2_grpc as health_service
from agent.draplugin.pb import dra_pb2 as pb
from agent.draplugin.pb import dra_pb2_grpc as service
from agent.draplugin.prepared import PreparedClaims
from agent.errors import AgentError

SERVICES = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
"""What we serve, as a kubelet compares it (k8s.io/kubelet pkg/apis/dra/v1 types.go)."""

REPEAT_S = 10.0
"""How often health is sent where nothing changes: three times before a kubelet calls it Unknown
(1.36 pkg/kubelet/cm/dra/healthinfo.go, DefaultHealthTimeout: 30 s)."""

LONGEST_MESSAGE = 1000
"""Characters; a kubelet cuts at 1024."""


class DraServicer(service.DRAPluginServicer):
    """Answers the kubelet from the prepared claims."""

    def __init__(self, prepared: PreparedClaims) -> None:
        self._prepared = prepared

    def NodePrepareResources(  # noqa: N802 - the service's own name
        self, request: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        """Prepare each claim by itself: one that fails does not hold up the others."""
        del context
        response = pb.NodePrepareResourcesResponse()
        log = structlog.get_logger()
        for asked in request.claims:
            claim = _reference(asked)
            answer = response.claims[claim.uid]
            try:
                prepared = self._prepared.prepare(claim)
            except AgentError as error:
                log.warning("claim not prepared", claim=str(claim), problem=str(error))
                answer.error = str(error)
                continue
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
        return response

    def NodeUnprepareResources(  # noqa: N802 - the service's own name
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """Give each claim up; a claim that was never prepared is a success, too."""
        del context
        response = pb.NodeUnprepareResourcesResponse()
        for asked in request.claims:
            claim = _reference(asked)
            answer = response.claims[claim.uid]
            try:
                was_prepared = self._prepared.unprepare(claim.uid)
            except AgentError as error:
                answer.error = str(error)
                continue
            structlog.get_logger().info(
                "claim given up", claim=str(claim), uid=claim.uid, was_prepared=was_prepared
            )
        return response


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceVerdict:
    """The health of one device; *message* is for a person, empty for a sound one."""

    is_healthy: bool
    message: str = ""


Verdicts: TypeAlias = Mapping[str, DeviceVerdict]
"""By the device's name."""


class HealthServicer(health_service.DRAResourceHealthServicer):
    """Sends the health of every device whenever it changes, and before it would be outdated."""

    def __init__(self, pool: str, clock: Callable[[], float] = time) -> None:
        """Send nothing before :meth:`update`; *clock* gives seconds since 1970."""
        self._pool = pool
        self._clock = clock
        self._changed = Condition()
        self._verdicts: Verdicts = {}
        self._generation = 0

    def update(self, verdicts: Verdicts) -> None:
        """Send *verdicts* from now on."""
        with self._changed:
            if verdicts != self._verdicts:
                self._verdicts = verdicts
                self._generation += 1
                self._changed.notify_all()

    def NodeWatchResources(  # noqa: N802 - the service's own name
        self, request: health_pb.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[health_pb.NodeWatchResourcesResponse]:
        """Stream until the client leaves."""
        del request
        is_open = context.add_callback(self._wake)
        sent = 0
        while is_open and context.is_active():
            with self._changed:
                before = sent
                self._changed.wait_for(
                    lambda: self._generation != before or not context.is_active(),  # noqa: B023
                    REPEAT_S if sent else None,
                )
                sent, verdicts = self._generation, self._verdicts
            yield self._message(verdicts)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _message(self, verdicts: Verdicts) -> health_pb.NodeWatchResourcesResponse:
        now = int(self._clock())
        response = health_pb.NodeWatchResourcesResponse()
        for name, verdict in verdicts.items():
            response.devices.add(
                device=health_pb.DeviceIdentifier(pool_name=self._pool, device_name=name),
                health=health_pb.HEALTHY if verdict.is_healthy else health_pb.UNHEALTHY,
                last_updated_time=now,
                message=verdict.message[:LONGEST_MESSAGE],
            )
        return response


def _reference(asked: pb.Claim) -> ClaimReference:
    return ClaimReference(uid=asked.uid, namespace=asked.namespace, name=asked.name)
