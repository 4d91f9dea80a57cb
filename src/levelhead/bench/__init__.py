"""Grids of runs, and the tables and pictures that compare them."""
