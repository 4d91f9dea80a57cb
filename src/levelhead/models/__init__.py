"""The networks of recipes, and the features of frozen backbones."""
