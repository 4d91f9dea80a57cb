"""Audits of predictions: how large the measured gaps between groups are, and how sure that is."""
