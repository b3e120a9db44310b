"""Rules about hardware and settings, and the engine that judges them."""
