"""Strangers' documents: whatever they hold, a reader answers soon, or refuses them in one line."""
