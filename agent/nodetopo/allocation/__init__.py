"""Which devices to hand out, exactly, and why."""
