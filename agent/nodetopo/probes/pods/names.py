"""Names, labels and label selectors by the rules of the API server.

Facts from Kubernetes 1.36: k8s.io/apimachinery pkg/api/validate/content/dns.go and kube.go,
pkg/api/validation/generic.go and objectmeta.go, pkg/apis/meta/v1/validation/validation.go and
pkg/apis/meta/v1/helpers.go (``LabelSelectorAsSelector``). Every function raises a DecodeError with
the path of the field, the server's message, and the cure.
"""

import re
from collections.abc import Mapping
from typing import Any

from nodetopo.errors import DecodeError
from nodetopo.formats.fields import Object, as_items, as_text, items, object_at, text_at, texts_at
from nodetopo.formats.placeholders import unfilled

MAX_LABEL = 63
"""Characters of a DNS label, of the value of a label, and of the last part of its key."""

MAX_SUBDOMAIN = 253
"""Characters of a DNS subdomain."""

_GENERATED = 58
"""Characters of ``generateName`` that are kept; five random ones follow
(k8s.io/apiserver pkg/storage/names/generate.go)."""

_SHOWN = 63
"""Characters of a value that a message repeats."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_KEY = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of a-z, 0-9 or '-', with a-z or 0-9 at each end"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of a-z, 0-9, '-' or '.', "
    "with a-z or 0-9 at each end of every part"
)
_KEY_RULE = "must consist of letters, digits, '-', '_' or '.', with a letter or digit at each end"


def refused(path: str, value: object, said: str, cure: str) -> DecodeError:
    """Return the error for a *value* that the API server refuses with the message *said*."""
    text = str(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    problem = f"the API server refuses {shown!r}: {said}"
    return unfilled(path, value) or DecodeError(path, problem, cure)


def required(path: str, cure: str) -> DecodeError:
    """Return the error for a field that the API server does not do without."""
    return DecodeError(path, "the API server refuses this: Required value", cure)


def check_label(name: str, path: str) -> None:
    """Raise unless *name* is a DNS label, as the names of containers and volumes are."""
    if len(name) > MAX_LABEL:
        raise refused(path, name, f"must be no more than {MAX_LABEL} characters", "shorten it")
    if not _LABEL.fullmatch(name):
        raise refused(path, name, _LABEL_RULE, "rename it, for instance my-name")


def check_subdomain(name: str, path: str) -> None:
    """Raise unless *name* is a DNS subdomain, as the names of most objects are."""
    if len(name) > MAX_SUBDOMAIN:
        raise refused(path, name, f"must be no more than {MAX_SUBDOMAIN} characters", "shorten it")
    if not _SUBDOMAIN.fullmatch(name):
        raise refused(path, name, _SUBDOMAIN_RULE, "rename it, for instance my-name")


def check_key(key: str, path: str) -> None:
    """Raise unless *key* is a valid key of a label, an annotation or a resource."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        raise refused(path, key, "a key has one '/' at most", "write prefix/name")
    if slash and not prefix:
        raise refused(path, key, "prefix part must be non-empty", "write prefix/name")
    if slash:
        check_subdomain(prefix, path)
    if len(name) > MAX_LABEL:
        said = f"name part must be no more than {MAX_LABEL} characters"
        raise refused(path, key, said, "shorten it")
    if not _KEY.fullmatch(name):
        raise refused(path, key, f"name part {_KEY_RULE}", "correct the name")


def check_label_value(value: str, path: str) -> None:
    """Raise unless *value* is a valid label value, or empty."""
    if len(value) > MAX_LABEL:
        raise refused(path, value, f"must be no more than {MAX_LABEL} characters", "shorten it")
    if value and not _KEY.fullmatch(value):
        raise refused(path, value, f"a valid label {_KEY_RULE}", "correct the value")


def labels_at(parent: Object, field: str, at: str) -> dict[str, str]:
    """Return the labels of a field after checking keys and values."""
    labels = texts_at(parent, field, at)
    for key, value in labels.items():
        check_key(key, f"{at}.{field}")
        check_label_value(value, f"{at}.{field}.{key}")
    return labels


def check_annotations(metadata: Object, at: str) -> None:
    """Raise for an annotation whose key the API server refuses; capitals do not matter."""
    for key in texts_at(metadata, "annotations", at):
        check_key(key.lower(), f"{at}.annotations")


def check_metadata(document: Object, *, is_label: bool = False, checks_prefix: bool = True) -> str:
    """Check the metadata of a namespaced object; return its name, or an example of one.

    Args:
        is_label: whether the kind's names are DNS labels instead of subdomains.
        checks_prefix: whether ``generateName`` is checked alongside a name.
    """
    metadata = object_at(document, "metadata", "")
    check = check_label if is_label else check_subdomain
    name = text_at(metadata, "name", "metadata")
    prefix = text_at(metadata, "generateName", "metadata")
    if prefix and checks_prefix:  # a dash at its end is no fault
        is_masked = len(prefix) > 1 and prefix.endswith("-")
        rest = prefix.encode()[:-2].decode(errors="replace")  # Go cuts bytes, not characters
        check(f"{rest}a" if is_masked else prefix, "metadata.generateName")
    if not name and prefix:
        name = f"{prefix[:_GENERATED]}00000"
        check(name, "metadata.generateName")
    elif name:
        check(name, "metadata.name")
    if not name:
        raise required("metadata.name", "name the object, or give a generateName")
    if namespace := text_at(metadata, "namespace", "metadata"):
        check_label(namespace, "metadata.namespace")
    labels_at(metadata, "labels", "metadata")
    check_annotations(metadata, "metadata")
    return name


def check_selector(selector: Object, at: str) -> None:
    """Raise for a label selector that cannot be used."""
    labels_at(selector, "matchLabels", at)
    for path, item in items(selector, "matchExpressions", at):
        operator = text_at(item, "operator", path) or ""
        values = _values(item, path)
        if operator in ("In", "NotIn"):
            if not values:
                raise required(f"{path}.values", f"{operator} compares with at least one value")
        elif operator not in ("Exists", "DoesNotExist"):
            said = "not a valid selector operator"
            raise refused(
                f"{path}.operator", operator, said, "use In, NotIn, Exists or DoesNotExist"
            )
        elif values:
            said = f"may not be specified when `operator` is {operator!r}"
            raise refused(f"{path}.values", values, said, "remove the values")
        check_key(text_at(item, "key", path) or "", f"{path}.key")
        for number, value in enumerate(values):
            check_label_value(value, f"{path}.values[{number}]")


def is_empty(selector: Object) -> bool:
    """Return whether a label selector is empty."""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a checked label *selector* matches *labels*."""
    stated = texts_at(selector, "matchLabels", "")
    if any(labels.get(key) != value for key, value in stated.items()):
        return False
    for path, item in items(selector, "matchExpressions", ""):
        value = labels.get(str(item.get("key")))
        values = _values(item, path)
        holds = {
            "In": value in values,
            "NotIn": value is None or value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds[item["operator"]]:
            return False
    return True


def _values(item: Object, at: str) -> list[str]:
    stated: Any = item.get("values")
    return [as_text(value, path) for value, path in as_items(stated, f"{at}.values")]
