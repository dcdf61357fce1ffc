"""The command `fsd adapter-audit`."""

from extensions.adapter_audit import settings
from pipelines.api import command, deferred

if __name__ == "__main__":
    command(settings.AuditConfig, deferred("extensions.adapter_audit.command"), settings.__doc__)
