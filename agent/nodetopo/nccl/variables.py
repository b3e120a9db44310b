"""The environment variables that NCCL reads.

Read out of NVIDIA/nccl: ``docs/userguide/source/env.rst`` of v2.30.7-1 says in which part of the
User Guide a variable is documented, if at all; the sources of the releases v2.3.5-5 to v2.30.7-1
say which of them read it. Names in the tables are without ``NCCL_``.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from nodetopo.errors import closest

Releases = tuple[str, str | None, str]
"""First and last release that reads the variables, and the variables.

The first is 2.3.5, the oldest release published as source, also for older variables, except two
that the guide dates itself; the last is ``None`` for those that 2.30.7 still reads.
"""

CONFIGURATION: tuple[Releases, ...] = (
    (
        "2.3.5",
        None,
        (
            "DEBUG DEBUG_FILE DEBUG_SUBSYS IB_GID_INDEX IB_HCA IB_RETRY_CNT IB_SL "
            "IB_TC IB_TIMEOUT SOCKET_FAMILY SOCKET_IFNAME"
        ),
    ),
    ("2.4.6", None, "IGNORE_CPU_AFFINITY"),
    ("2.4.8", None, "NSOCKS_PERTHREAD SOCKET_NTHREADS"),
    ("2.5.6", None, "CROSS_NIC"),
    ("2.6.4", None, "COLLNET_ENABLE TOPO_DUMP_FILE TOPO_FILE"),
    ("2.9.9", None, "COLLNET_NODE_THRESHOLD"),
    ("2.10.3", None, "NET"),
    ("2.11.4", None, "NET_PLUGIN"),
    ("2.12.7", None, "SET_THREAD_NAME"),
    ("2.19.1", None, "TUNER_PLUGIN"),
    ("2.21.5", None, "IB_ADDR_FAMILY IB_ADDR_RANGE IB_ROCE_VERSION_NUM"),
    ("2.22.3", None, "IB_FIFO_TC"),
    (
        "2.23.4",
        None,
        (
            "CONF_FILE IB_RETURN_ASYNC_EVENTS OOB_NET_ENABLE OOB_NET_IFNAME "
            "PROFILER_PLUGIN UID_STAGGER_RATE UID_STAGGER_THRESHOLD"
        ),
    ),
    ("2.24.3", None, "SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC"),
    ("2.26.2", None, "DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS"),
    ("2.27.3", None, "CTA_POLICY"),
    ("2.28.3", None, "NETDEVS_POLICY"),
    ("2.28.7", None, "ENV_PLUGIN"),
    ("2.29.2", None, "SOCKET_POLL_TIMEOUT_MSEC"),
    ("2.30.3", None, "MULTI_RANK_GPU_ENABLE"),
    ("2.30.7", None, "SOCKET_MAGIC"),
)
"""Part "System configuration" of the guide: for permanent use."""

DEBUGGING: tuple[Releases, ...] = (
    ("2.0.5", "2.2.12", "CHECKS_DISABLE"),
    ("2.1", "2.2", "SINGLE_RING_THRESHOLD"),
    ("2.3.5", "2.3.7", "IB_CUDA_SUPPORT"),
    ("2.3.5", "2.4.8", "LL_THRESHOLD"),
    (
        "2.3.5",
        None,
        (
            "BUFFSIZE CHECK_POINTERS IB_DISABLE LAUNCH_MODE NET_GDR_READ NTHREADS "
            "P2P_DISABLE P2P_LEVEL SHM_DISABLE"
        ),
    ),
    ("2.4.2", "2.4.8", "TREE_THRESHOLD"),
    ("2.4.2", None, "NET_GDR_LEVEL"),
    ("2.5.6", None, "ALGO MAX_NCHANNELS MIN_NCHANNELS PROTO"),
    ("2.6.4", None, "IB_AR_THRESHOLD"),
    ("2.8.3", None, "NET_SHARED_BUFFERS"),
    ("2.9.6", None, "SET_STACK_SIZE"),
    ("2.9.9", None, "NVB_DISABLE"),
    ("2.10.3", None, "IB_QPS_PER_CONNECTION"),
    ("2.11.4", None, "GRAPH_REGISTER"),
    ("2.12.7", None, "IB_PCI_RELAXED_ORDERING NET_SHARED_COMMS P2P_PXN_LEVEL PXN_DISABLE"),
    ("2.12.12", None, "P2P_DIRECT_DISABLE"),
    ("2.13.4", None, "DMABUF_ENABLE GRAPH_MIXING_SUPPORT"),
    (
        "2.14.3",
        None,
        "ALLOC_P2P_NET_LL_BUFFERS COMM_BLOCKING P2P_LL_THRESHOLD P2P_NET_CHUNKSIZE",
    ),
    ("2.15.1", None, "CGA_CLUSTER_SIZE"),
    ("2.16.2", None, "IB_ADAPTIVE_ROUTING MEM_SYNC_DOMAIN"),
    ("2.17.1", None, "MAX_CTAS MIN_CTAS NVLS_ENABLE"),
    ("2.18.1", None, "CUMEM_ENABLE IB_SPLIT_DATA_ON_QPS"),
    ("2.19.1", None, "LOCAL_REGISTER"),
    ("2.20.3", None, "IB_MERGE_NICS"),
    ("2.21.5", None, "MNNVL_ENABLE"),
    ("2.22.3", None, "RUNTIME_CONNECT"),
    ("2.23.4", None, "CUMEM_HOST_ENABLE IB_ECE_ENABLE MNNVL_CLIQUE_ID"),
    ("2.24.3", None, "LEGACY_CUDA_REGISTER RAS_ADDR RAS_ENABLE RAS_TIMEOUT_FACTOR"),
    ("2.25.1", None, "MNNVL_UUID"),
    ("2.26.2", None, "LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL NET_GDR_C2C"),
    ("2.27.3", None, "PXN_C2C WIN_ENABLE"),
    ("2.29.2", None, "IPC_USE_ABSTRACT_SOCKET"),
    ("2.29.7", None, "CHECK_MODE SYM_GIN_KERNELS_ENABLE"),
    ("2.30.3", None, "IB_OOO_RQ IGNORE_COLLNET_MISMATCH IGNORE_NET_MISMATCH"),
    ("2.30.7", None, "GRAPH_STREAM_ORDERING NET_MERGE_POLICY"),
)
"""Part "Debugging": not for production, as the guide says."""

UNDOCUMENTED: tuple[Releases, ...] = (
    ("2.3.5", "2.3.7", "IB_GDR_LEVEL"),
    ("2.3.5", "2.4.8", "RINGS THREAD_THRESHOLD"),
    ("2.3.5", None, "COMM_ID GDR_FLUSH_DISABLE GROUP_CUDA_STREAM MAX_NRINGS MIN_NRINGS"),
    ("2.5.6", "2.5.7", "GRAPH"),
    ("2.5.6", None, "HOSTID LL128_NTHREADS THREAD_THRESHOLDS"),
    ("2.6.4", None, "GRAPH_DUMP_FILE GRAPH_DUMP_FILE_RANK GRAPH_FILE TOPO_DUMP_FILE_RANK"),
    (
        "2.7.3",
        None,
        "LL128_BUFFSIZE LL_BUFFSIZE MAX_P2P_NCHANNELS MIN_P2P_NCHANNELS P2P_READ_ENABLE",
    ),
    ("2.8.3", "2.8.4", "SHARED_BUFF_COUNT"),
    ("2.8.3", None, "IB_PKEY IB_USE_INLINE"),
    ("2.9.6", "2.11.4", "GDRCOPY_TAIL_ENABLE"),
    ("2.9.6", None, "GDRCOPY_ENABLE GDRCOPY_FIFO_ENABLE GDRCOPY_FLUSH_ENABLE"),
    ("2.9.9", None, "NVB_PRECONNECT"),
    ("2.10.3", "2.12.12", "AGG_ALLOC_MODE"),
    ("2.10.3", "2.19.4", "AGG_CHANNEL_SIZE"),
    ("2.11.4", None, "GRAPH_HELPER_DISABLE"),
    ("2.12.7", "2.22.3", "PROXY_PROFILE"),
    (
        "2.12.7",
        None,
        (
            "CHUNK_SIZE GDRCOPY_SYNC_ENABLE IGNORE_DISABLED_P2P "
            "NCHANNELS_PER_NET_PEER NET_DISABLE_INTRA"
        ),
    ),
    ("2.12.10", None, "L1_SHARED_MEMORY_CARVEOUT"),
    ("2.13.4", "2.20.5", "CUDA_PATH"),
    ("2.13.4", "2.21.5", "WORK_FIFO_DEPTH"),
    ("2.13.4", "2.30.4", "CREATE_THREAD_CONTEXT SHM_MEMCPY_MODE SHM_USE_CUDA_MEMCPY"),
    ("2.13.4", None, "P2P_USE_CUDA_MEMCPY SHM_LOCALITY"),
    ("2.14.3", None, "PROXY_DUMP_SIGNAL"),
    ("2.15.1", None, "NET_FORCE_FLUSH"),
    ("2.16.2", None, "P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE PROXY_APPEND_BATCH_SIZE"),
    ("2.16.5", None, "PROGRESS_APPENDOP_FREQ"),
    ("2.17.1", None, "NVLS_NCHANNELS"),
    ("2.18.1", None, "COMM_SPLIT_SHARE_RESOURCES IB_MERGE_VFS NET_OVERHEAD"),
    ("2.19.4", None, "CONNECT_ROUND_MAX_PEERS REPORT_CONNECT_PROGRESS WARN_ENABLE_DEBUG_INFO"),
    ("2.20.3", "2.20.5", "MNNVL"),
    ("2.20.3", None, "NVLSTREE_MAX_CHUNKSIZE"),
    ("2.21.5", None, "NVLS_CHUNKSIZE"),
    (
        "2.22.3",
        None,
        "IB_ROUTABLE_FLID_GID_INDEX UNPACK_DOUBLE_NCHANNELS WORK_ARGS_BYTES WORK_FIFO_BYTES",
    ),
    (
        "2.23.4",
        None,
        (
            "PAT_ENABLE PROFILE_COLL_POOL_SIZE PROFILE_DUMP_FILE PROFILE_EVENT_MASK "
            "PROFILE_GROUP_POOL_SIZE PROFILE_P2P_POOL_SIZE "
            "PROFILE_PROXY_CTRL_POOL_SIZE PROFILE_PROXY_DETACH_POOL_SIZE"
        ),
    ),
    (
        "2.24.3",
        None,
        (
            "IB_MQP_RETRY_ALL IB_MQP_RETRY_CNT IB_MQP_RETRY_SLEEP_MSEC "
            "IB_WARN_RAIL_LOCAL NET_FORCE_MERGE NET_MERGE_LEVEL "
            "NET_OPTIONAL_RECV_COMPLETION"
        ),
    ),
    ("2.26.2", None, "NET_PLUGIN_REF_COUNT"),
    (
        "2.27.3",
        None,
        (
            "COMM_SHRINK_SHARE_RESOURCES IB_DATA_DIRECT LL128_C2C "
            "NVLINK_UTIL_CENTRIC_SCHED_ENABLE SOCKET_INLINE SOCKET_MIN_TASKSIZE "
            "SOCKET_RCVBUF SOCKET_SNDBUF SYM_CTAS SYM_KERNEL WIN_STRIDE"
        ),
    ),
    ("2.27.5", None, "MNNVL_SCATTER_NETS_ENABLE TUNER_CONFIG_FILE"),
    (
        "2.28.3",
        None,
        (
            "INSPECTOR_DUMP_DIR INSPECTOR_DUMP_THREAD_ENABLE "
            "INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS INSPECTOR_DUMP_VERBOSE "
            "INSPECTOR_ENABLE NVTX_DISABLE PROFILE_COLL_API_POOL_SIZE "
            "PROFILE_GROUP_API_POOL_SIZE PROFILE_KERNEL_LAUNCH_POOL_SIZE "
            "PROFILE_P2P_API_POOL_SIZE PROXY_CPUSET SET_CPU_STACK_SIZE "
            "SINGLE_PROC_MEM_REG_ENABLE"
        ),
    ),
    ("2.28.7", "2.29.7", "GIN_COUNTER_POOL_SIZE GIN_NCONTEXTS GIN_SIGNAL_POOL_SIZE"),
    (
        "2.28.7",
        None,
        (
            "GIN_ENABLE GIN_ERROR_QUERY_SEC GIN_GDAKI_NIC_HANDLER "
            "GIN_GDAKI_QP_DEPTH GIN_PROXY_QUEUE_SIZE GIN_TYPE MNNVL_RAIL_PER_HOST "
            "P2P_SCHEDULE_GROUP_SIZE"
        ),
    ),
    (
        "2.29.2",
        None,
        (
            "ALLGATHERV_ENABLE ENABLE_VERSION_CHECK MULTI_SEGMENT_REGISTER "
            "NUM_RMA_CTX P2P_EPOCH_ENABLE P2P_PER_CHANNEL_NET_BW "
            "RMA_PROXY_DUMP_SIGNAL RMA_PROXY_QUEUE_SIZE SYM_CE_THRESHOLD "
            "SYM_NOWIN_ENABLE"
        ),
    ),
    (
        "2.29.3",
        None,
        (
            "INSPECTOR_PROM_DUMP PROFILER_CE_POLLER_INTERVAL_MICROSECONDS "
            "PROFILER_CE_TIMING PROFILE_CE_BATCH_POOL_SIZE "
            "PROFILE_CE_COLL_POOL_SIZE PROFILE_CE_SYNC_POOL_SIZE"
        ),
    ),
    ("2.29.7", "2.29.7", "GIN_EXCLUSIVE_CONTEXTS"),
    (
        "2.29.7",
        None,
        (
            "DISABLE_MEM_MANAGER GDAKI_USE_RELIABLE_DB GIN_NCONNECTIONS GIN_PLUGIN "
            "GIN_PLUGIN_REF_COUNT IB_DEVICE_PCI_ORDER "
            "IB_PREPOST_RECEIVE_WORK_REQUESTS IB_RECEIVER_SIDE_MATCHING_SCHEME "
            "IB_RESILIENCY_PORT_FAILOVER IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS "
            "IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY LSA_TEAM_SIZE NO_CACHE"
        ),
    ),
    (
        "2.30.3",
        None,
        (
            "ELASTIC_BUFFER_REGISTER GIN_GDAKI_MAX_DEST_RD_ATOMIC "
            "GIN_GDAKI_MAX_QP_RD_ATOMIC IBVERBS_LIB IB_RESILIENCY_PORT_RECOVERY "
            "IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT "
            "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL "
            "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE "
            "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE "
            "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT "
            "IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX "
            "IB_RESILIENCY_PORT_RECOVERY_START_DELAY INSPECTOR_COLL_POOL_SIZE "
            "INSPECTOR_COMM_POOL_SIZE INSPECTOR_DUMP_COLL_RING_SIZE "
            "INSPECTOR_DUMP_MIN_SIZE_BYTES INSPECTOR_DUMP_P2P_RING_SIZE "
            "INSPECTOR_ENABLE_P2P INSPECTOR_P2P_POOL_SIZE INSPECTOR_POOL_GROW "
            "INSPECTOR_REQUIRE_KERNEL_TIMING MNNVL_CROSS_CLIQUE P2P_MAX_PEERS "
            "PARAM_DUMP_ALL SYM_TMA_ENABLE"
        ),
    ),
    ("2.30.4", None, "SYM_REUSE_SYSMEM_HANDLES"),
    (
        "2.30.7",
        None,
        (
            "DEV_API_JIT GIN_IB_TC IB_QUERY_PORT_SPEED IB_SUBNET_AWARE_ROUTING "
            "IB_SUBNET_PREFIX_LEN MLOPART_RDMA_ENABLE NET_GDR_MLOPART RMA_DISABLE "
            "RMA_PLUGIN RMA_PLUGIN_REF_COUNT SHADOW_MEMPOOL_MAX_SIZE "
            "SYM_RS_GIN_CHUNK_SIZE TOPO_SPLIT_MLOPART"
        ),
    ),
)
"""Undocumented variables, including NCCL's example plugins'."""

PREFIX = "NCCL_"
"""Prefix of NCCL's variables."""

NEWEST = "2.30.7"
"""The newest release whose sources were read."""

LONGEST = 100
"""Characters of a name that is compared with the known ones; the longest of those has 57."""

CLOSE = 0.8
"""How similar two names must be for one to be a misspelling of the other (``difflib`` ratio)."""


class Standing(StrEnum):
    """The part of NCCL's User Guide that documents a variable."""

    CONFIGURATION = "configuration"
    DEBUGGING = "debugging"
    UNDOCUMENTED = "undocumented"


class Variable(Struct, frozen=True, kw_only=True):
    """A variable that NCCL reads, or once did."""

    name: str
    standing: Standing
    since: str  # the first release that reads it; 2.3.5 stands for that or any older one
    until: str | None = None  # the last one; None if `NEWEST` does


KNOWN: Mapping[str, Variable] = MappingProxyType(
    {
        f"{PREFIX}{name}": Variable(
            name=f"{PREFIX}{name}", standing=standing, since=since, until=until
        )
        for standing, releases in (
            (Standing.CONFIGURATION, CONFIGURATION),
            (Standing.DEBUGGING, DEBUGGING),
            (Standing.UNDOCUMENTED, UNDOCUMENTED),
        )
        for since, until, names in releases
        for name in names.split()
    },
)
"""All variables, by name."""

ELSEWHERE = frozenset(
    {
        # PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp and NCCLUtils.cpp: the old
        # names of its TORCH_NCCL_ variables.
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG",
        "NCCL_ENABLE_TIMING",
        "NCCL_NONBLOCKING_TIMEOUT",
        "NCCL_USE_COMM_NONBLOCKING",
        # What images and builds say about the library (nvidia/cuda images, CMake's FindNCCL).
        "NCCL_HOME",
        "NCCL_INCLUDE_DIR",
        "NCCL_INSTALL_PATH",
        "NCCL_LIB_DIR",
        "NCCL_LIBRARY",
        "NCCL_ROOT",
        "NCCL_ROOT_DIR",
        "NCCL_VERSION",
        # Google Cloud's builds and plugins (its guides to GPUDirect-TCPX and TCPXO).
        "NCCL_DYNAMIC_CHUNK_SIZE",
        "NCCL_TELEMETRY_MODE",
        "NCCL_TUNER_CONFIG_PATH",
    },
)
"""Variables with NCCL's prefix that other programs read."""

FAMILIES = (
    "NCCL_CTRAN_",
    "NCCL_FASTRAK_",
    "NCCL_GPUDIRECTTCPX_",
    "NCCL_IBEXT_",
    "NCCL_PLUGIN_",
    "NCCL_SHARP_",
    "NCCL_SHIMNET_",
    "NCCL_TESTS_",
    "NCCL_UCX_",
)
"""Prefixes of variables that network plugins, other builds and nccl-tests read."""

REAL_ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "NCCL_IB_CUDA_SUPPORT": "NCCL_NET_GDR_LEVEL",
        "NCCL_IB_GDR_LEVEL": "NCCL_NET_GDR_LEVEL",
        "NCCL_LL_THRESHOLD": "NCCL_PROTO",
        "NCCL_PORT_RANGE": "the sysctl net.ipv4.ip_local_port_range in the pod's securityContext, "
        "from which NCCL's ports come",
        "NCCL_TIMEOUT": "the timeout of the framework, such as that of "
        "torch.distributed.init_process_group",
        "NCCL_TREE_THRESHOLD": "NCCL_ALGO",
    },
)
"""Replacements for removed variables, and for variables in guides that never existed."""


def is_foreign(name: str) -> bool:
    """Return whether a program other than NCCL reads *name*, which can have NCCL's prefix."""
    return not name.startswith(PREFIX) or name in ELSEWHERE or name.startswith(FAMILIES)


def instead_of(name: str) -> str | None:
    """Return what to use instead of *name*, which NCCL does not read; ``None`` is unknown."""
    if name in REAL_ANSWERS:
        return REAL_ANSWERS[name]
    if name in KNOWN or len(name) > LONGEST:
        return None
    return closest(name, KNOWN, cutoff=CLOSE)
