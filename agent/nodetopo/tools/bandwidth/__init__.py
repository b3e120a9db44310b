"""Expected bandwidths, logs of bandwidth tests, and what explains the difference."""
