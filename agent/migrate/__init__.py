"""What becomes of the configuration of the programs that nodetopo takes the place of."""
