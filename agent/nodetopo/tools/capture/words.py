"""Free text with only those words that tell nothing of an owner: the program's own, and numbers.

A word is kept if the source of this program has it, or if its form shows that it is a number, a
version, a time or a device. A learned name becomes its substitute. Everything else is left out:
addresses, hosts, names, ids and keys need no pattern of their own.
"""

import os
import re
from errno import errorcode
from functools import cache
from pathlib import Path

import nodetopo
from nodetopo.tools.capture.substitutes import LEAST, LEFT_OUT, Substitutes

PUBLIC_NAMES = frozenset(
    """
    API configz default gpu-operator gpus kube-node-lease kube-public kube-system kubelet library
    node node-feature-discovery nodetopo nvidia-device-plugin system
    """.split()  # noqa: SIM905 - as prose
)
"""Names of public programs and of Kubernetes' own namespaces, and words that begin issues."""

_ERRORS = """
    authority broken certificate denied dial eof forbidden handshake httpconnectionpool
    httpsconnectionpool i/o io lookup max newconnectionerror no permission pipe refused
    reset resolve retries rpc serviceaccount servfail tcp tls traceback udp unexpected unreachable
    x509
"""
"""Words of Go's, Python's and the kernel's messages that the source might lack."""

_WORD = re.compile(r"[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*")
_TOKEN = re.compile(r"[^\s\"'`,;()\[\]{}<>|=*]+")
_AROUND = ".!?…\\"
_SPAN = r"[0-9]{1,5}(?:-[0-9]{1,5})?"
_BUILD = "(?:aws|azure|gcp|gke|generic|ibm|lowlatency|nvidia|oracle)"
_UNIT = r"(?:%|[KMGTPE]i?B?|kB?|B|[munµ]?s|min|h|d|x|W|[MG]Hz)"

DEVICE = re.compile(
    r"lo|rdma_cm|all"
    # systemd.net-naming-scheme(7): all numbers are decimal, so no MAC address is among these.
    r"|(?:en|ib|wl|ww|roce|rdma|hs)(?:P[0-9]{1,5})?(?:p[0-9]{1,5}s[0-9]{1,5}|[osi][0-9]{1,5})"
    r"(?:(?:f|np|d|n|v|u|s|r|i|c|pf|vf)[0-9]{1,5})*(?:\.[0-9]{1,4})?"
    r"|(?:mlx[45](?:_core|_ib|_bond)?|eth|ib|bond|docker|hsn|hsi|net|efa|rdma|gpu|team|usb|cni|br"
    r"|node|em|virbr|tunl|irdma|bnxt_re|uverbs|umad|issm|ucm|flannel\.|nvidia|cpu|vf|mig|GPU|NIC|DD|CPU"
    r"|NUMA|numa|Xid|XID|nvme|sd[a-z]|md|tty)_?[0-9]{1,4}"
    r"(?:(?:[_.:]|rdma|eth|np|d|p|v|s|vf)[0-9]{1,4})*"
    r"|p[0-9]{1,4}p[0-9]{1,4}",  # biosdevname(1), as em1 is
)
"""An HCA, an interface or another device as kernels, udev and NVIDIA's programs name it."""

PCI = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"

_KEPT = re.compile(
    r"""
      [-+~±\#]?[0-9]{1,10}(?:\.[0-9]{1,6})?UNIT?(?:/UNIT)?      # a number or an amount
    | SPAN(?:/[0-9]{1,5})?                                      # a range, a ratio
    | [KMGT]?[BbT]/s(?:ec)? | [-+]?Inf | (?:0x)?0+ | 0x[0-9a-f]{1,8}
    | (?![0-9]{4}\.[0-9]{4}\.[0-9]{4}$)                         # not a MAC address
      v?[0-9]{1,4}(?:\.[0-9]{1,4}){1,2}                         # a version
      (?:-(?:rc|alpha|beta)[.0-9]{0,4}|-[0-9]{1,4}(?:-BUILD)?)?(?:\+(?:k[03]s|rke2r)[0-9.]{0,4})?
    | (?:[0-9]{4}-[0-9]{2}-[0-9]{2})?T?                         # a time
      (?:[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?(?:Z|\+[0-9]{2}:?[0-9]{2})?
    | PCI | gpu-[0-9a-f]{1,4}(?:-[0-9]{1,2})*
    | (?:pod|namespace|container|claim|device|hostname|pool|network)-[0-9]{1,4}
    """.replace("UNIT", _UNIT)
    .replace("SPAN", _SPAN)
    .replace("PCI", PCI)
    .replace("BUILD", _BUILD),
    re.VERBOSE | re.ASCII,
)
"""The forms of words that are kept; the last are substitutes."""

_ROOTS = ("dev", "sys", "proc", "etc", "usr", "lib", "lib64", "bin", "sbin", "run", "var", "opt")
_RELATIVE = re.compile(
    r"(?:bus|class|devices|module|kernel|driver|firmware|self|sys|proc|[0-9]{1,7})/"
)
"""How paths begin that probes name relative to ``/sys`` and ``/proc``."""

_DOMAIN = re.compile(r"([a-z0-9.-]+\.[a-z]+)/([\w.-]+)")
"""The name of a resource or label."""

_UUID_OF = re.compile(r"(?:MIG-)?(?:GPU-)?(.+?)(?:(?:::|/)[0-9/]+)?")
"""A UUID in the id of a GPU, a MIG device or a replica."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_HOME = re.compile(
    r"(?i)(?:/[\w.-]+){0,8}?/(?:home|homes|users|root|export|people)(?:/[^\s:'\",);]*)?"
)


@cache
def vocabulary() -> frozenset[str]:
    """Return all words of this program's source and pages and of the system's errors, lower case.

    Source that cannot be read adds no words, and so less is kept.
    """
    texts = [_ERRORS, *map(os.strerror, errorcode), *errorcode.values()]
    package = Path(nodetopo.__file__).parent
    for path in (*package.rglob("*.py"), *package.rglob("*.md")):
        try:
            texts.append(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue
    return frozenset(word for text in texts for word in _WORD.findall(text.lower()))


def is_public(word: str) -> bool:
    """Return whether *word* is the program's own, a number, or a device by its form."""
    if word.lower() in vocabulary():
        return True
    return (DEVICE.fullmatch(word) or _KEPT.fullmatch(word)) is not None


def is_composed(word: str) -> bool:
    """Return whether all parts of *word* are public, such as those of ``kubectl-label``."""
    return all(is_public(part) for part in re.split(r"[-_.:/ ]", word) if part)


class Words:
    """Rewrites free text with the substitutes learned so far."""

    def __init__(self, substitutes: Substitutes) -> None:
        self._substitutes = substitutes

    def kept(self, text: str) -> str:
        """Return *text* with only its public words, the learned names replaced."""
        self._substitutes.learn_text(text)
        text = _HOME.sub(f"/{LEFT_OUT}", self._substitutes.apply(text))
        return _TOKEN.sub(lambda match: self._trimmed(match[0]), text)

    def _trimmed(self, token: str) -> str:
        core = token.strip(_AROUND).removesuffix(":").rstrip(_AROUND).lstrip("-")
        if not any(map(str.isalnum, core)):
            return token
        start = token.index(core)
        return token[:start] + self._word(core) + token[start + len(core) :]

    def _word(self, word: str) -> str:
        known = self._substitutes.names.get(word)
        if known is not None and word not in PUBLIC_NAMES and len(word) >= LEAST:
            return known
        if self._is_invented(word) or is_public(word):
            return word
        resource = _DOMAIN.fullmatch(word)
        if resource is not None and is_public(resource[1]) and is_composed(resource[2]):
            return word
        if known is not None:
            return known
        if (url := _SCHEME.fullmatch(word)) is not None:
            is_local = url[1] in ("unix", "file") and url[2].startswith("/")
            scheme = url[1] if is_public(url[1]) else LEFT_OUT
            return f"{scheme}://{self._path(url[2]) if is_local else LEFT_OUT}"
        if word.startswith("/"):
            return self._path(word)
        if _RELATIVE.match(word):
            return "/".join(map(self._component, word.split("/")))
        for sign in (":", "/"):
            if word.count(sign) == 1:
                return sign.join(self._part(part) for part in word.split(sign))
        return LEFT_OUT

    def _is_invented(self, word: str) -> bool:
        uuid = _UUID_OF.fullmatch(word)
        invented = self._substitutes.invented
        return word in invented or (uuid is not None and uuid[1] in invented)

    def _path(self, path: str) -> str:
        root, *below = path[1:].split("/")
        if root not in _ROOTS:
            return f"/{LEFT_OUT}"
        return "/".join(("", root, *map(self._component, below)))

    def _component(self, name: str) -> str:
        base = re.sub(r"(?:\.[0-9]{1,4})+$", "", name)  # a library's version
        if not name or self._is_invented(name) or is_public(name) or is_public(base):
            return name
        return self._substitutes.names.get(name, LEFT_OUT)

    def _part(self, part: str) -> str:
        """Return one of two words that a colon or a slash joins, such as a pod's names."""
        if not part or part in self._substitutes.invented:
            return part
        core = part.strip(_AROUND)
        if (known := self._substitutes.names.get(core)) is not None:
            return known
        # Names of objects are in lower case, and a word of the source can be one.
        return part if is_public(core) and not core.islower() else LEFT_OUT
