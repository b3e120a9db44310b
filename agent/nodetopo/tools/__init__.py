"""Tools that only the command line uses."""
