"""The outcome of ResourceClaims, with reasons, which the allocator does not give."""
