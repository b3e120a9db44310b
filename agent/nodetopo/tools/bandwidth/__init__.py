"""Expected bandwidths, logs of bandwidth tests, and explanations of shortfalls."""
