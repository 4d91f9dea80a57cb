"""Models that a user trained: their rows, two models on the same rows, and a model card."""
