"""Rules on device plugins and what the kubelet has from them."""

from agent.checks import plugin_devices, plugin_peers
from agent.checks.rule import Rule

RULES: tuple[Rule, ...] = (*plugin_devices.RULES, *plugin_peers.RULES)
