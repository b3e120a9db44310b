"""What a kubelet asks a socket in ``plugins_registry``, answered from memory.

It gives GetInfo one second (1.36 pkg/kubelet/pluginmanager/operationexecutor).
"""

from dataclasses import dataclass

import grpc

from agent.deviceplugin.pb import pluginregistration_pb2 as pb
from agent.deviceplugin.pb import pluginregistration_pb2_grpc as service
from agent.deviceplugin.registration_part import VERSION

TYPE = "DevicePlugin"
"""What the kubelet calls the kind of plugin that offers devices."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What a kubelet told after it tried; *problem* is ``None`` if it took the resource."""

    problem: str | None


class Announcer(service.RegistrationServicer):
    """Tell which resource is served on this socket, and keep the latest notice."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._notice: Notice | None = None

    def take_notice(self) -> Notice | None:
        """Return a notice that was not returned before, if there is one."""
        notice, self._notice = self._notice, None
        return notice

    def GetInfo(  # noqa: N802 - the service's own name
        self, request: pb.InfoRequest, context: grpc.ServicerContext
    ) -> pb.PluginInfo:
        """Name the resource; without an endpoint the kubelet goes on with this socket."""
        del request, context
        return pb.PluginInfo(type=TYPE, name=self._resource, supported_versions=[VERSION])

    def NotifyRegistrationStatus(  # noqa: N802 - the service's own name
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """Remember how it went."""
        del context
        problem = None if request.plugin_registered else request.error or "no reason given"
        self._notice = Notice(problem)
        return pb.RegistrationStatusResponse()
