"""Our own DRA driver, the pure part: devices, their order, and ResourceSlices."""
