"""What the attention of a finished run does: bounds, queries and keys, and where it looks."""
