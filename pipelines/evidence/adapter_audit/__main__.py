"""The command `fsd adapter-audit`."""

from pipelines.common.cli import command, deferred
from pipelines.evidence import adapter_audit

if __name__ == "__main__":
    command(adapter_audit.AuditConfig, deferred("pipelines.evidence.adapter_audit.audit"), adapter_audit.__doc__)
