"""Audits of predictions: how large the measured gaps between groups are, and how sure that is."""

from levelhead.auditing.audit import AttributeAudit, AuditResult, audit
from levelhead.auditing.files import read_columns

__all__ = ["AttributeAudit", "AuditResult", "audit", "read_columns"]
