"""Rules, and the engine that evaluates them."""
