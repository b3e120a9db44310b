"""GPUs by claim: our DRA driver, and other drivers of the node."""
