"""Patterns of names in Kubernetes."""

DNS_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""A DNS subdomain: the prefix of a key, the name of most objects; their length is another rule."""

PART = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""A value that is not empty, or what follows the slash of a key: up to 63 characters."""
