"""The texts of an audit."""

from fsd.data.documents import Document
from fsd.data.near_duplicates import families, refuse_contradictions
from fsd.data.readers import parse_columns, read_files
from fsd.data.splitting import Split, split_labelled
from fsd.errors import UsageError
from pipelines.adapter_audit.config import AuditConfig


def read(config: AuditConfig) -> tuple[Split, list[Document]]:
    """The labelled texts in two parts, by family, and the texts to be judged.

    Raises:
        UsageError: if a file cannot be read, a class is missing or too small, or a text to be judged is also labelled.
    """
    documents = read_files(config.data, parse_columns(config.columns))
    labelled = [document for document in documents if document.member is not None]
    judged = [document for document in documents if document.member is None]
    known = {document.text for document in labelled}
    both = next((document for document in judged if document.text in known), None)
    if both:
        raise UsageError(f"a text to be judged must not be labelled elsewhere; {both.source} is")
    refuse_contradictions(labelled)
    parts = split_labelled(labelled, validation=config.validation, seed=config.seed)
    groups = len(set(families([document for document in parts.validation if not document.member])))
    if judged and config.fpr < 1 / (groups + 1):
        raise UsageError(
            f"fpr must be at least {1 / (groups + 1):.4g} = 1/({groups}+1), with {groups} families of other texts in "
            f"validation; got {config.fpr:g}"
        )
    return parts, judged
