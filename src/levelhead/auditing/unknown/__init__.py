"""Audits without the attribute: a labelled subset with proxies, three proxies, randomised responses, or bounds.

The methods are functions of arrays in :mod:`levelhead.metrics`; :mod:`~levelhead.auditing.unknown.choice` picks one.
Nothing here guesses, keeps or returns the group of a single row.
"""

from levelhead.auditing.unknown import privacy as privacy
