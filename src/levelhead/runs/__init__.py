"""One run: its recipe, its folder, training, evaluation, cost, model card and page."""
