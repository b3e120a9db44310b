"""The health of HCAs."""
