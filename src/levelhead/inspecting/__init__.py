"""What the attention of a finished run does: disparity and its bounds, queries and keys, and where it looks."""
