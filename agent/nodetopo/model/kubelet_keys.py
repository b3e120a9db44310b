"""The keys of a KubeletConfiguration v1beta1, by the releases that know them.

The kubelet decodes the file of ``--config`` strictly, and where that fails once more, leniently:
a key that it does not know, or that differs in case, then has no effect, and one line of its log
says so. Drop-ins are decoded by Go's encoding/json, which accepts a key in any case and ignores
unknown ones silently (kubernetes v1.36.3 pkg/kubelet/kubeletconfig/util/codec/codec.go,
cmd/kubelet/app/server.go).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from nodetopo import errors
from nodetopo.model.kubernetes import Release

OLDEST: Release = (1, 28)
"""The oldest release whose keys are listed. No key has been removed since."""

NEWEST: Release = (1, 37)
"""The newest release whose keys are listed."""

MAX_ODD_KEYS = 64
"""The most that are kept of one kubelet; real files have a handful."""


class OddKey(Struct, frozen=True, kw_only=True):
    """A key of a file that the kubelet can ignore."""

    key: str  # as written, or its beginning where it is very long
    within: str = ""  # path of its object, such as reservedMemory[0]; empty at the top
    file: str  # as the kubelet names it
    is_drop_in: bool = False  # in which case does not matter
    is_repeated: bool = False  # the object has it twice, so that only the last counts
    # The same key in its right case, stated or by default, counts instead.
    is_overridden: bool = False

    @property
    def path(self) -> str:
        return f"{self.within}.{self.key}" if self.within else self.key


_PLAIN = """
    address allowedUnsafeSysctls apiVersion cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS
    clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles
    containerLogMaxSize containerRuntimeEndpoint contentType cpuCFSQuota cpuCFSQuotaPeriod
    cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod enableContentionProfiling
    enableControllerAttachDetach enableDebugFlagsHandler enableDebuggingHandlers
    enableProfilingHandler enableServer enableSystemLogHandler enableSystemLogQuery
    enforceNodeAllocatable eventBurst eventRecordQPS evictionHard evictionMaxPodGracePeriod
    evictionMinimumReclaim evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod
    failSwapOn featureGates fileCheckFrequency hairpinMode healthzBindAddress healthzPort
    httpCheckFrequency imageGCHighThresholdPercent imageGCLowThresholdPercent imageMinimumGCAge
    imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kind
    kubeAPIBurst kubeAPIQPS kubeReserved kubeReservedCgroup kubeletCgroups
    localStorageCapacityIsolation makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls maxPods
    memoryManagerPolicy memoryThrottlingFactor nodeLeaseDurationSeconds nodeStatusMaxImages
    nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj podCIDR podPidsLimit
    podsPerCore port protectKernelDefaults providerID qosReserved readOnlyPort registerNode
    registryBurst registryPullQPS reservedSystemCPUs resolvConf rotateCertificates runOnce
    runtimeRequestTimeout seccompDefault serializeImagePulls serverTLSBootstrap
    showHiddenMetricsForVersion shutdownGracePeriod shutdownGracePeriodCriticalPods staticPodPath
    staticPodURL staticPodURLHeader streamingConnectionIdleTimeout syncFrequency systemCgroups
    systemReserved systemReservedCgroup tlsCertFile tlsCipherSuites tlsMinVersion tlsPrivateKeyFile
    topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope volumePluginDir
    volumeStatsAggPeriod
"""

SINCE: Mapping[str, Release] = MappingProxyType(
    {
        "imageMaximumGCAge": (1, 29),
        "containerLogMaxWorkers": (1, 30),
        "containerLogMonitorInterval": (1, 30),
        "podLogsDir": (1, 30),
        "failCgroupV1": (1, 31),
        "crashLoopBackOff": (1, 32),
        "singleProcessOOMKill": (1, 32),
        "imagePullCredentialsVerificationPolicy": (1, 33),
        "mergeDefaultEvictionSettings": (1, 33),
        "preloadedImagesVerificationAllowlist": (1, 33),
        "userNamespaces": (1, 33),
        "memoryReservationPolicy": (1, 36),
        "tlsCurvePreferences": (1, 36),
        "defaultPodSysctls": (1, 37),
    }
)
"""Keys newer than :data:`OLDEST`, and the release that introduced them."""

LIKE = 0.75
"""Similarity from which a name is suggested (difflib ratio, 0 to 1)."""

_MAX_LENGTH = 200
"""Characters of a key that are compared; no known key is longer."""

_EMPTY: tuple[Any, ...] = (None, False, 0, "", "0s", {}, [])
"""Go's output for unset fields."""

Keys = Mapping[str, Any]
"""Keys of an object → the keys of the object inside; empty if there are none to check."""


def _keys(words: str, **inner: Keys) -> Keys:
    return MappingProxyType(dict.fromkeys(words.split(), MappingProxyType({})) | inner)


_OUTPUT = _keys("infoBufferSize splitStream")

KEYS: Keys = _keys(
    f"{_PLAIN} {' '.join(SINCE)}",
    authentication=_keys(
        "",
        anonymous=_keys("enabled"),
        webhook=_keys("cacheTTL enabled"),
        x509=_keys("clientCAFile"),
    ),
    authorization=_keys("mode", webhook=_keys("cacheAuthorizedTTL cacheUnauthorizedTTL")),
    crashLoopBackOff=_keys("maxContainerRestartPeriod"),
    logging=_keys(
        "flushFrequency format verbosity vmodule", options=_keys("", json=_OUTPUT, text=_OUTPUT)
    ),
    memorySwap=_keys("swapBehavior"),
    registerWithTaints=_keys("effect key timeAdded value"),
    reservedMemory=_keys("limits numaNode"),
    shutdownGracePeriodByPodPriority=_keys("priority shutdownGracePeriodSeconds"),
    tracing=_keys("endpoint samplingRatePerMillion"),
    userNamespaces=_keys("idsPerPod"),
)
"""All keys: k8s.io/kubelet config/v1beta1/types.go of 0.28 to 0.37, k8s.io/component-base
{logs,tracing}/api/v1/types.go of 0.30 to 0.37, and Taint of k8s.io/api core/v1."""


def spelled(key: str, known: Keys, *, any_case: bool) -> str | None:
    """Return *key* as *known* spells it; ``None`` where *known* does not have it."""
    if key in known or not any_case:
        return key if key in known else None
    lowered = key.lower()
    return next((name for name in known if name.lower() == lowered), None)


def closest(key: str, names: Keys, least: float = LIKE) -> str | None:
    """Return the name that is most similar to *key*; ``None`` where none is similar."""
    lowered = {name.lower(): name for name in names}
    close = errors.closest(key[:_MAX_LENGTH].lower(), lowered, cutoff=least)
    return None if close is None else lowered[close]


def is_empty(value: Any) -> bool:
    """Return whether *value* means the same as leaving the key out."""
    return value in _EMPTY
