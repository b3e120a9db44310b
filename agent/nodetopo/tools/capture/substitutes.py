"""Substitutes for identifiers, one for each original and of its form.

They come from a counter, not from the original: no original can be found by trying
candidates.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from nodetopo.model.digits import is_digits
from nodetopo.model.snapshot import Snapshot

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MAC = re.compile(r"(?<![0-9a-f:])[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?![0-9a-f:])", re.IGNORECASE)
_IPV4_GID = re.compile(r"((?:0000:){5}ffff:)[0-9a-f]{4}:[0-9a-f]{4}", re.IGNORECASE)
NAMED_BY_ADDRESS = re.compile(r"(?:enx|wlx|ibx|rocex|iwx|rdmax)([0-9a-f]{12,16})", re.IGNORECASE)
"""How udev and rdma-core name a device after its MAC address or GUID."""
_DIGITS, _HEX = "0123456789", "0123456789abcdef"

LEAST = 4
"""Shorter texts are no identifiers, and would be found inside others."""

LEFT_OUT = "…"
"""Stands for what has no substitute."""

_NO_NAMES = ("value", "label", "key", "text", "swap", "path")
"""Kinds whose originals are ordinary words, such as `true` and `config`, which free text keeps."""


@dataclass(slots=True)
class Substitutes:
    """The substitute of each original, by kind."""

    kinds: dict[str, dict[str, str]] = field(default_factory=dict)
    # For names that are words: whole words of free text.
    names: dict[str, str] = field(default_factory=dict)
    invented: set[str] = field(default_factory=set)  # all substitutes
    _table: dict[str, str] = field(default_factory=dict, init=False)
    _size: int = field(default=0, init=False)  # originals when the table was made
    _pattern: re.Pattern[str] = field(default=re.compile(""), init=False)

    def of(self, kind: str, original: str) -> str:
        """Return the substitute of *original*, a new one at first sight.

        Zeros identify nothing, and stay. :meth:`apply` does not replace what is very short.
        """
        if not original.strip("0:-"):
            return original
        known = self.kinds.setdefault(kind, {})
        key = original if len(original) >= LEAST else f"\0{original}"
        if key not in known:
            # Short identifiers have few forms: one can be taken, or all.
            numbers = range(len(known), len(known) + MOST_DEVICES)
            candidates = (_invented(kind, number, original) for number in numbers)
            free = (one for one in candidates if one.strip("0:-") and one not in self.invented)
            known[key] = next(free, None) or _invented(kind, len(known), original)
            self.invented.add(known[key])
        return known[key]

    def learn(self, kind: str, original: str, substitute: str) -> None:
        """Make *substitute* that of *original* in all texts, unless it is too short for that."""
        if len(original) >= LEAST:
            self.kinds.setdefault(kind, {}).setdefault(original, substitute)
            self.invented.add(substitute)

    def learn_text(self, text: str) -> None:
        """Add substitutes for all UUIDs and MAC addresses in *text*."""
        for match in _UUID.finditer(text):
            if match[0].strip("0-"):
                self.of("UUID", match[0])
        for match in _MAC.finditer(text):
            if match[0].strip("0f:"):
                self.of("MAC address", match[0])

    def counted(self, kind: str, original: str, word: str | None = None) -> str:
        """Return a name of *kind* and a number; :meth:`apply` does not replace *original*.

        For words such as `default` and `gpu`, which occur in other places too.

        Args:
            word: the name as free text has it, if it is another one.
        """
        known = self.kinds.setdefault(f"{kind} name", {})
        # No text contains this prefix.
        name = known.setdefault(f"\0{original}", f"{kind}-{len(known)}")
        if kind not in _NO_NAMES:
            self.names.setdefault(original if word is None else word, name)
        self.invented.add(name)
        return name

    def apply(self, text: str) -> str:
        """Return *text* with every known original replaced where it is no part of a word."""
        table, size = self._table, sum(map(len, self.kinds.values()))
        if size != self._size:
            self._size = size
            pairs = (pair for known in self.kinds.values() for pair in known.items())
            table = self._table = dict(pairs)
            alternatives = "|".join(map(re.escape, sorted(table, key=len, reverse=True)))
            self._pattern = re.compile(f"(?<![0-9A-Za-z])(?:{alternatives})(?![0-9A-Za-z])")
        if not table:
            return text
        return self._pattern.sub(lambda match: table[match[0]], text)

    def summary(self) -> Iterator[str]:
        """Yield how many of each kind were replaced."""
        for kind, known in self.kinds.items():
            yield f"{len(known)} {kind}{'' if len(known) == 1 else 's'} replaced"


_TELLING = 16
"""Characters of an identity that is no substitute by chance."""

MOST_DEVICES = 256
"""Numbers that :func:`is_substituted` tries; a node has fewer GPUs and HCAs."""


def is_substituted(snapshot: Snapshot) -> bool:
    """Return whether the UUIDs of GPUs or the GUIDs of HCAs in *snapshot* are substitutes.

    Substitutes are numbered, so that those of two snapshots are equal for different devices.
    """
    identities = [("GPU UUID", gpu.uuid or "") for gpu in snapshot.gpus[:1]]
    identities += [("GUID", hca.node_guid or "") for hca in (snapshot.hcas or ())[:1]]
    return any(
        _invented(kind, number, original) == original
        for kind, original in identities
        if len(original) >= _TELLING
        for number in range(MOST_DEVICES)
    )


def _invented(kind: str, number: int, original: str) -> str:
    seed = f"nodetopo {kind} {number}"
    if kind == "GID":
        # A GID's form stays: an IPv4 address, a link-local one, the zeros between.
        if _IPV4_GID.fullmatch(original):
            return f"{original[:30]}0a{_shaped(seed, '00:0000', _HEX)}"
        return ":".join(
            group if group in ("fe80", "0000") else _shaped(f"{seed} {at}", group, _HEX)
            for at, group in enumerate(original.split(":"))
        )
    kept = ""
    if named := NAMED_BY_ADDRESS.fullmatch(original):
        kept = original[: named.start(1)]
    elif "UUID" in kind and (prefix := re.match(r"(?:MIG-)?(?:GPU-)?", original)):
        kept = prefix[0]
    alphabet = _DIGITS if is_digits(original) else _HEX
    return kept + _shaped(seed, original[len(kept) :], alphabet)


def _shaped(seed: str, original: str, alphabet: str) -> str:
    """Return *original* with each letter and digit replaced, everything else kept."""
    digest = hashlib.sha256(seed.encode()).digest() * (len(original) // 32 + 1)
    pairs = zip(original, digest, strict=False)
    return "".join(
        (alphabet[byte % len(alphabet)] if sign.isalnum() else sign) for sign, byte in pairs
    )
