"""Node labels: outputs, pacing and cleanup."""
