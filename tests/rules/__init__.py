"""For each rule a machine on which it passes and one on which it does not."""
