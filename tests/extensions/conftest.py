"""Commands of extensions are tested as those of the core: see tests/pipelines/conftest.py."""

from tests.pipelines.conftest import (  # noqa: F401
    empty_pictures,
    finished_run,
    job,
    own_run,
    passes,
    requirements_are_not_compared,
    run_command,
    tables_fit,
)
