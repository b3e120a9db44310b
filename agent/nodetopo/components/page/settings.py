"""The settings of the status page."""

from dataclasses import dataclass

from nodetopo.kernel.settings.groups import LOG
from nodetopo.kernel.settings.own import KernelSettings


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class PageSettings(KernelSettings):
    """The kernel's settings and the settings of the page."""

    status_page: bool = LOG.switch(
        True,
        "serve a page about the node on localhost, at /",
        before="log_format",
    )
    status_page_everywhere: bool = LOG.switch(
        False,  # it shows what checks find; localhost is reached by port-forward alone
        "serve the page on metrics-address too, not on localhost alone",
        before="log_format",
    )
    status_page_pods: bool = LOG.switch(
        False,  # whoever reaches the address would learn what runs here
        "name on it the pods that hold GPUs",
        before="log_format",
    )
