"""The help of settings, nodetopo's and those of NVIDIA's device plugin."""

from nodetopo.kernel.settings.declare import default, key
from nodetopo.kernel.settings.nvidia.names import Name, ValueKind
from nodetopo.kernel.settings.values import Option, shown


def explanation(name: str, option: Option) -> str:
    """Return the help of the setting *name*: its meaning, choices and default."""
    words = f": {', '.join(option.choices)}" if option.choices else ""
    usual = default(name)
    if usual in (None, (), False) or "default" in option.help:  # the text says so itself
        return option.help + words
    unit = " s" if isinstance(usual, float) else ""
    return f"{option.help}{words} (default: {shown(usual)}{unit})"


def effect(name: Name) -> str:
    """Return the effect of a setting of NVIDIA's device plugin in a few words."""
    if name.ours:
        return f"sets {' and '.join(map(key, name.ours))}"
    if name.kind is ValueKind.MPS:
        return "refused: MPS is not supported"
    usual = " or ".join(nvidia_shown(value) for value in name.agrees or ())
    if not name.instead:
        return f"must be {usual}"
    return f"read as {usual}: {name.instead}" if usual else f"no effect: {name.instead}"


def nvidia_shown(value: object) -> str:
    """Return the value of a setting as NVIDIA's plugin prints it."""
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value)) or "[]"
    return str(value) or "(empty)"
