"""Everything that is published: labels, metrics, Events and zones."""
