"""What follows from a snapshot about distances, links and domains."""
