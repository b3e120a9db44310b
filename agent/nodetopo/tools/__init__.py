"""What only the command line uses."""
