"""How a stage is trained: settings, loop, checkpoints, and the rule that keeps an epoch."""
