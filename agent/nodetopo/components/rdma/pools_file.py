"""The configuration file of HCAs, in the unchanged format of Mellanox' shared plugin.

Its keys, defaults and limits: k8s-rdma-shared-dev-plugin 410b0f3, README.md, pkg/types/types.go,
and ``ValidateConfigs`` of pkg/resources/resources_manager.go. All input accepted by that plugin is
accepted, including unknown keys, and keys in another case, as Go reads them; accepted input that
cannot work or has no effect causes a warning. Four keys are extensions that the plugin ignores:
``mode``, ``issm`` and ``numa`` of an entry, and ``hcas`` of its selectors. YAML is read as well as
JSON.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from nodetopo.errors import InputError
from nodetopo.formats.document import Value, read_configuration
from nodetopo.kernel.settings.data_files import read_text
from nodetopo.kernel.settings.values import did_you_mean
from nodetopo.rdma.pools import Pool, RdmaConfig, Selectors, SharingMode
from nodetopo.rdma.selection import LINK_TYPES

DEFAULT_PREFIX = "rdma"

MANY_POOLS = 64
"""Beyond it, a warning: each pool is a device plugin with separate threads, and real files have up
to one for each HCA."""

LONGEST_NAME = 63
"""Characters of the part after the slash (k8s.io/apimachinery ``IsQualifiedName``)."""

_KEYS = ("periodicUpdateInterval", "configList")
_ENTRY_KEYS = (
    "resourceName",
    "resourcePrefix",
    "rdmaHcaMax",
    "selectors",
    "devices",
    "mode",
    "issm",
    "numa",
)
_SELECTOR_KEYS = ("vendors", "deviceIDs", "drivers", "ifNames", "linkTypes", "hcas")
_CURE = "correct the file; docs/operate/rdma.md describes it"

_NAME = re.compile(r"[a-zA-Z0-9_]+", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_PCI_ID = re.compile(r"[0-9a-fA-F]{4}", re.ASCII)


def load(path: Path, *, mode: SharingMode, with_issm: bool) -> RdmaConfig:
    """Return the pools of the file *path*; *mode* and *with_issm* are as for :func:`parse`."""
    text = read_text(path, "an RDMA configuration")
    return parse(str(path), text, mode=mode, with_issm=with_issm)


def parse(
    name: str,
    text: str,
    *,
    mode: SharingMode = SharingMode.SHARED,
    with_issm: bool = True,
) -> RdmaConfig:
    """Return the pools of the file *name*, whose content is *text*.

    *mode* and *with_issm* are for entries that do not say.

    Raises:
        InputError: it is no such configuration; the message has the line and the key.
    """
    root, warnings = read_configuration(name, text)
    if root is None:
        raise InputError(f"{name} is empty", 'write {"configList": [...]}')
    reader = _Reader(list(warnings), mode, with_issm)
    keys = reader.known(root, _KEYS)
    if "periodicUpdateInterval" in keys:  # the node is scanned anyway
        reader.count(keys["periodicUpdateInterval"], "seconds")
    if "configList" not in keys or not keys["configList"].items():
        (keys.get("configList") or root).refuse("no resource is configured", _CURE)
    entries = keys["configList"].items()
    if len(entries) > MANY_POOLS:
        reader.warnings.append(
            f"{keys['configList'].where}: {len(entries)} resources, each with threads of its own: "
            f"more than {MANY_POOLS} are a burden"
        )
    seen: dict[str, Value] = {}
    pools = []
    for entry in entries:
        pool = reader.pool(entry)
        if pool.resource in seen:
            first = seen[pool.resource]
            entry.refuse(
                f"{pool.resource} exists already, at {first.where}", "name each resource once"
            )
        bare = pool.resource.rpartition("/")[2]
        if any(name.rpartition("/")[2] == bare for name in seen):
            reader.warnings.append(
                f"{entry.where}: the shared plugin refuses {bare} under a second prefix"
            )
        seen[pool.resource] = entry
        if (problem := _kubelets_refusal(pool.resource)) is None:
            pools.append(pool)
        else:
            reader.warnings.append(f"{entry.where}: {pool.resource} is not offered: {problem}")
    return RdmaConfig(pools=tuple(pools), warnings=tuple(reader.warnings))


class _Reader(Struct, frozen=True):
    """Reads entries; *warnings* grow."""

    warnings: list[str]
    mode: SharingMode
    with_issm: bool

    def pool(self, entry: Value) -> Pool:
        keys = self.known(entry, _ENTRY_KEYS)
        if "resourceName" not in keys:
            entry.refuse("an entry without resourceName", "name the resource")
        name = self.text(keys["resourceName"])
        if _NAME.fullmatch(name) is None:
            keys["resourceName"].refuse(
                f"{name!r} is no name of a resource",
                "letters, digits and underscores; what stands before the slash is resourcePrefix",
            )
        prefix = self.text(keys["resourcePrefix"]) if "resourcePrefix" in keys else ""
        mode = self.mode
        if "mode" in keys:
            word = self.text(keys["mode"])
            if word not in set(SharingMode):
                close = did_you_mean(word, tuple(mode.value for mode in SharingMode))
                keys["mode"].refuse(
                    f"{word!r} is no mode", f"one of {', '.join(SharingMode)}{close}"
                )
            mode = SharingMode(word)
        with_issm = self.flag(keys["issm"]) if "issm" in keys else self.with_issm
        with_numa = "numa" in keys and self.flag(keys["numa"])
        if "numa" in keys and not with_numa and mode is not SharingMode.SHARED:
            self.warnings.append(
                f"{keys['numa'].where}: devices of mode {mode} have NUMA nodes whatever numa says"
            )
        if "rdmaHcaMax" in keys:
            most = self.count(keys["rdmaHcaMax"], "devices")
        else:
            most = 0
            self.warnings.append(f"{entry.where}: no rdmaHcaMax, so that it has no devices")
        return Pool(
            resource=f"{prefix or DEFAULT_PREFIX}/{name}",
            most=most,
            selectors=self.selectors(entry, keys),
            mode=mode,
            with_issm=with_issm,
            with_numa=with_numa,
        )

    def selectors(self, entry: Value, keys: Mapping[str, Value]) -> Selectors:
        """Return the selectors of an entry, ``devices`` among them."""
        lists: dict[str, tuple[str, ...]] = {}
        if "selectors" in keys:
            known = self.known(keys["selectors"], _SELECTOR_KEYS)
            lists = {key: self.texts(value) for key, value in known.items()}
            for key in ("vendors", "deviceIDs"):
                self.warn_unless(
                    known.get(key),
                    lists.get(key, ()),
                    lambda word: _PCI_ID.fullmatch(word) is not None,
                    "four hex digits without 0x, such as 15b3",
                )
            self.warn_unless(
                known.get("linkTypes"),
                lists.get("linkTypes", ()),
                lambda word: word in LINK_TYPES.values(),
                " or ".join(LINK_TYPES.values()),
            )
        devices = self.texts(keys["devices"]) if "devices" in keys else ()
        is_selected = any(lists.values())
        if is_selected and devices:
            keys["devices"].refuse(
                "selectors and devices in one entry",
                "move the names of interfaces to selectors.ifNames",
            )
        if not is_selected and not devices:
            entry.refuse(
                "an entry that selects no HCA",
                'write selectors, such as {"vendors": ["15b3"]}',
            )
        if devices:
            self.warnings.append(
                f"{keys['devices'].where}: devices is deprecated; selectors.ifNames is the same"
            )
        return Selectors(
            vendors=lists.get("vendors", ()),
            device_ids=lists.get("deviceIDs", ()),
            drivers=lists.get("drivers", ()),
            if_names=devices or lists.get("ifNames", ()),
            link_types=lists.get("linkTypes", ()),
            hcas=lists.get("hcas", ()),
        )

    def known(self, value: Value, names: tuple[str, ...]) -> dict[str, Value]:
        """Return the known entries of a mapping without null ones; warn of unknown keys.

        Go reads a key in any case, the last of several equal ones, and no unknown key.
        """
        if value.is_null():
            return {}
        self.warnings.extend(value.repeated())
        spelled = {name.lower(): name for name in names}
        known: dict[str, Value] = {}
        for word, entry in value.entries().items():
            name = spelled.get(word.lower())
            if name is None:
                self.warnings.append(
                    f"{entry.where}: unknown key {word!r} is ignored{did_you_mean(word, names)}"
                )
                continue
            if name != word:
                self.warnings.append(f"{entry.where}: {word} is read as {name}")
            if not entry.is_null():
                known[name] = entry
        return known

    def texts(self, value: Value) -> tuple[str, ...]:
        """Return a list of texts, each once."""
        return tuple(dict.fromkeys(self.text(item) for item in value.items()))

    @staticmethod
    def text(value: Value) -> str:
        """Return a text; a number is rejected, since ``1017`` and ``"1017"`` can differ."""
        text = value.scalar()
        if not isinstance(text, str):
            value.expected("a text in quotes")
        if not text.isprintable():
            value.refuse("a text with control characters")
        return text

    @staticmethod
    def flag(value: Value) -> bool:
        flag = value.scalar()
        if not isinstance(flag, bool):
            value.expected("true or false")
        return flag

    @staticmethod
    def count(value: Value, what: str) -> int:
        """Return a whole number of *what*, 0 or more."""
        number = value.scalar()
        if not isinstance(number, int) or isinstance(number, bool):
            value.expected(f"a whole number of {what}")
        if number < 0:
            value.refuse(f"{number} {what}", "write 0 or more")
        return number

    def warn_unless(
        self,
        value: Value | None,
        words: tuple[str, ...],
        is_good: Callable[[str], bool],
        expected: str,
    ) -> None:
        """Warn of each of *words* that no HCA can have."""
        if value is not None:
            self.warnings.extend(
                f"{value.where}: {word!r} matches no HCA: {expected} is meant"
                for word in words
                if not is_good(word)
            )


def _kubelets_refusal(resource: str) -> str | None:
    """Return why a kubelet rejects a resource of this name; ``None`` if it accepts it.

    The rule for extended resources applies (k8s.io/kubernetes pkg/apis/core/v1/helper,
    IsExtendedResourceName), which the shared plugin does not check.
    """
    domain, _, name = resource.partition("/")
    if len(name) > LONGEST_NAME:
        return f"the name has {len(name)} characters, and {LONGEST_NAME} are accepted"
    if not (name[:1] + name[-1:]).isalnum():
        return "the name does not begin and end with a letter or a digit"
    if _DOMAIN.fullmatch(domain) is None:
        return f"{domain!r} is no domain: small letters, digits, - and ."
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return "names below kubernetes.io are the kubelet's own"
    return None
