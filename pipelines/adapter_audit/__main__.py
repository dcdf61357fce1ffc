"""The command `fsd adapter-audit`."""

from pipelines import adapter_audit
from pipelines.common.cli import command, deferred

if __name__ == "__main__":
    command(adapter_audit.AuditConfig, deferred("pipelines.adapter_audit.audit"), adapter_audit.__doc__ or "")
