"""Whether a request can be met at all, and what to do where it cannot."""

from agent.errors import InputError


def check_counts(free: int, required: int, size: int, what: str) -> None:
    """Check the counts of a request; *what* is one device, as people call it.

    Raises:
        InputError: no set of that size can be had.
    """
    if size < 1:
        raise InputError(f"cannot allocate {size} {what}s", "ask for at least 1")
    wanted = f"{size} {what}{'' if size == 1 else 's'}"
    if not free:
        raise InputError(f"cannot allocate {wanted}: none is available", f"free a {what} first")
    if size > free:
        raise InputError(
            f"cannot allocate {wanted}: only {free} {'is' if free == 1 else 'are'} available",
            f"ask for at most {free}",
        )
    if required > size:
        raise InputError(
            f"cannot allocate {wanted} that contain{'s' if size == 1 else ''} {required} required",
            f"ask for at least {required}",
        )
