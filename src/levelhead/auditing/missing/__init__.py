"""Audits without the attribute: a labelled subset with proxies, three proxies, randomised responses, or bounds.

Each module is one method on counts or sums over rows; :mod:`~levelhead.auditing.missing.choice` picks among them.
Nothing here guesses, keeps or returns the group of a single row.
"""

from levelhead.auditing.missing import privacy as privacy
