"""Node labels as pure functions of a snapshot."""
