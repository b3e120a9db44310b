"""The settings of the status page."""

from dataclasses import dataclass

from nodetopo.kernel.settings.groups import LOG
from nodetopo.kernel.settings.own import KernelSettings


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class PageSettings(KernelSettings):
    """The kernel's settings and the settings of the page."""

    status_page: bool = LOG(
        True,
        "serve a page about the node on localhost, at /",
        before="log_format",
    )
    status_page_everywhere: bool = LOG(
        False,  # it shows findings; only port-forward reaches localhost
        "serve the page on metrics-address too, not only on localhost",
        before="log_format",
    )
    status_page_pods: bool = LOG(
        False,  # anyone who reaches the address would see the pods
        "show the pods that hold GPUs on the page",
        before="log_format",
    )
