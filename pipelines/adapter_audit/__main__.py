"""The command `fsd adapter-audit`."""

from pipelines import adapter_audit
from pipelines.common.cli import command

if __name__ == "__main__":
    command(adapter_audit.AuditConfig, adapter_audit.prepare, adapter_audit.__doc__ or "")
