"""What PyYAML raises beside its own errors."""

TRIPPED = (ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""Its constructors trip over a tag that does not fit its value, such as ``!!int ""`` or
``!!bool x``, and over dates that are none; its composer over deep nesting (PyYAML 6.0,
constructor.py)."""
