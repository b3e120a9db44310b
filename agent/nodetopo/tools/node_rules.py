"""The checks of a node, where the component that has them is installed."""

from nodetopo.checks.rule import Rule, Suite
from nodetopo.kernel.components import COMPONENTS


def node_rules(*suites: Suite) -> tuple[Rule, ...]:
    """Return the rules of *suites*, by default of all; none without the component ``audit``."""
    if "audit" not in COMPONENTS:
        return ()
    from nodetopo.components.audit.catalogue import RULES  # noqa: PLC0415 - see above

    return tuple(rule for rule in RULES if not suites or rule.suite in suites)
