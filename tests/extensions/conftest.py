"""Commands of extensions are tested as those of the core: see tests/pipelines/conftest.py."""

from tests.pipelines.conftest import empty_pictures, finished_run, job, own_run, passes, run_command, tables_fit  # noqa: F401
