"""Addresses, names and descriptions in MLflow's user interface.

The interface opens its pages for generative AI unless an address asks for model training, and its table of runs shows
no metric until columns are chosen. An experiment can hold such a choice as a shared view, a tag that an address names.
"""

import json
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fsd.errors import UsageError

if TYPE_CHECKING:
    from fsd.tracking.store import Store

LOCAL = "http://127.0.0.1:5000"
"""Where `fsd ui` serves a store that is no server itself."""
NOTE = "mlflow.note.content"
"""Tag with the description of a run or an experiment."""
OPENING = "Was this text in that model's training data?"
"""Start of the descriptions of experiments that are kept up to date; a user's own description is left as it is."""
HEADLINES = ("fsd_auc", "gain", "placebo_lead", "blind_auc", "tpr_at_5fpr")
"""Names of the headline metrics, in the order of their columns."""
_VIEW = "fsd"
_STATE = {
    "orderByKey": "attributes.start_time",
    "orderByAsc": False,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "datasetsFilter": [],
    "modelVersionFilter": "All Runs",
    "searchFilter": "",
    "selectedColumns": ["attributes.`Description`", *(f"metrics.`headline/{name}`" for name in HEADLINES)],
}


def run_name(*parts: str) -> str:
    """Name of a run: model, data, method and, once it is known, the best score."""
    return " · ".join(part for part in parts if part)


def address(server: str, experiment_id: str, run_id: str = "") -> str:
    """Address of the table of an experiment's runs, or of one run, on a server."""
    ml = {"workflowType": "machine_learning"}
    if run_id:
        return f"{server}/#/experiments/{experiment_id}/runs/{run_id}?{urlencode(ml)}"
    return f"{server}/#/experiments/{experiment_id}/runs?{urlencode({**ml, 'viewStateShareKey': _VIEW})}"


def server(store: "Store") -> str:
    """Address of the server of a store: its own, or the one that `fsd ui` starts."""
    return store.address.rstrip("/") if store.uri.startswith(("http://", "https://")) else LOCAL


def newest_page(store: "Store", base: str, experiment: str = "") -> str:
    """Address on the server `base` of the table of an experiment's runs, by default the one with the newest run."""
    found = store.client.search_experiments()
    if experiment:
        ids = [one.experiment_id for one in found if one.name == experiment]
        if not ids:
            names = ", ".join(sorted(one.name for one in found))
            raise UsageError(f"the experiment must be one of {names}; got {experiment}")
        return address(base, ids[0])
    runs = store.client.search_runs(
        [one.experiment_id for one in found], order_by=["attributes.start_time DESC"], max_results=1
    )
    return address(base, runs[0].info.experiment_id) if runs else base


def set_view(store: "Store", experiment_id: str) -> None:
    """Keep with the experiment which columns the table of its runs shows."""
    _set_tag(store, experiment_id, f"mlflow.sharedViewState.{_VIEW}", json.dumps(_STATE))


def _set_tag(store: "Store", experiment_id: str, name: str, value: str) -> None:
    """Set a tag of an experiment; the second time it is there, if another process has set it at the same moment."""
    from mlflow.exceptions import MlflowException

    try:
        store.client.set_experiment_tag(experiment_id, name, value)
    except MlflowException:  # UNIQUE constraint failed
        store.client.set_experiment_tag(experiment_id, name, value)


def describe_experiment(store: "Store", run_id: str, description: str) -> None:
    """Describe a run's experiment by its latest result, unless the user has described it."""
    run = store.client.get_run(run_id)
    experiment = store.client.get_experiment(run.info.experiment_id)
    if not experiment.tags.get(NOTE, OPENING).startswith(OPENING):
        return
    page = address("", experiment.experiment_id, run_id)
    note = f"{OPENING}\n\nLatest result: [{run.info.run_name}]({page.lstrip('/')})\n\n{description}"
    _set_tag(store, experiment.experiment_id, NOTE, note)
