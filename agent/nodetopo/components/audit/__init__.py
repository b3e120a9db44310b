"""What is wrong: checks of the node, alignment of its pods, rejected pods."""
