"""Schedulers of other projects, as far as the lab has them: their objects and their rules."""
