"""A model `api:NAME` by its name and settings: the scorers that ask its API."""

from collections.abc import Callable
from functools import partial

from extensions.api.client import Client, CompletionsScorer, ContinuationsAPI, RepliesAPI, key_for
from fsd.api import API, APIConfig, ModelConfig, PromptTokens, UsageError, check_tokenizer_located, draws


def scorers(
    config: ModelConfig, api: APIConfig, tokens: PromptTokens | None, chat: bool
) -> dict[str, CompletionsScorer] | None:
    """Scorers by name, the API being not asked yet; None if the model is behind none."""
    if not config.by_api:
        return None
    client = _client(config, api)
    makers: dict[str, Callable[..., CompletionsScorer]] = {"replies": partial(RepliesAPI, chat=chat)}
    if not chat:
        makers["base"] = CompletionsScorer
    for form, way in draws(config).items():
        makers[f"base.{form}"] = partial(ContinuationsAPI, draws=way, chat=chat)
    asking = {}
    for name, make in makers.items():
        asking[name] = make(
            client,
            config.model.removeprefix(API),
            start=api.start_token,
            tokens=tokens,
            concurrency=api.concurrency,
            description="API",
        )
    return asking


def _client(config: ModelConfig, api: APIConfig) -> Client:
    """The client of an API whose settings make sense."""
    if api.base_url is None:
        raise UsageError(
            f"model {config.model} must come with --base-url, e.g. http://localhost:8000/v1; there is none"
        )
    # Whether a server puts a start token is up to it, and token ids are sent with one.
    if config.first_token != "scored":
        raise UsageError(f"first-token must be scored where a model is behind an API; got {config.first_token}")
    if api.tokenizer is not None:
        check_tokenizer_located(api.tokenizer, config.revision)
    return Client(api.base_url, key=key_for(api.base_url), per_minute=api.requests_per_minute)
