"""What a rule is, and the engine that judges by rules."""
