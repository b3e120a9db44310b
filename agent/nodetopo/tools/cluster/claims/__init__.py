"""What became of ResourceClaims, and why: the allocator says neither."""
