"""Servers on this machine that speak as vLLM does, backed by a tiny model, and failing."""

import itertools
import json
import threading

import pytest
import torch

from extensions.api.client import Client, CompletionsScorer
from fsd.models.language_model import load
from fsd.scoring.services import PromptTokens

END = "<|endoftext|>"


def ok(body):
    return 200, json.dumps(body).encode(), {}


def refused(status, said="no", **headers):
    return status, json.dumps({"error": {"message": said, "type": "x"}}).encode(), headers


def completion(tokens, logp, generated=1):
    """As vLLM and OpenAI answer."""
    choice = {"text": "".join(tokens), "logprobs": {"tokens": list(tokens), "token_logprobs": list(logp)}}
    return {"choices": [choice], "usage": {"completion_tokens": generated}}


def by_letter(request):
    letters = list(request["prompt"])
    return ok(completion([*letters, "!"], [None, *(-ord(c) / 100 for c in letters[1:]), -0.1]))


@pytest.fixture
def error():
    """A reply of an error's status, with the service's words and headers."""
    return refused


@pytest.fixture
def completed():
    """A reply's body: tokens and their log-probabilities."""
    return completion


@pytest.fixture
def words():
    """What a server answers whose tokens are letters; the first has no log-probability."""
    return by_letter


class Url(str):
    """A server's base URL, with the bodies of its POST requests, and all headers."""

    @property
    def requests(self):
        return [body for _, body in self.fake.requests if body]

    @property
    def headers(self):
        return self.fake.headers


@pytest.fixture
def serve(service, reply, monkeypatch):
    """Starts a server that answers completions by a function of the request's JSON, or each path by one."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def start(answer):
        answers = answer if isinstance(answer, dict) else {"/v1/completions": answer}

        def answered(path, body):
            status, content, headers = answers[path](body) if path in answers else refused(404, "no such path")
            return reply(content, status, {name.replace("_", "-"): value for name, value in headers.items()})

        fake = service(answered)
        url = Url(f"{fake.url}/v1")
        url.fake = fake
        return url

    return start


@pytest.fixture
def scorer(fake_time):
    """Gives a scorer of the model `tiny` at an address, whose waits take no time."""

    def make(url, *, start="", tokens=None, **options):
        client = Client(url, clock=fake_time.clock, **options)
        return CompletionsScorer(client, "tiny", start=start, tokens=tokens, concurrency=4)

    return make


@pytest.fixture(scope="session")
def model(tiny):
    """The tiny model itself."""
    return load(str(tiny), device="cpu")


@pytest.fixture
def tokens(model):
    """Its tokenizer."""
    return PromptTokens(model.tokenizer, "tiny")


class Backed:
    """A tiny model as a server knows it: from ids to the log-probabilities of what comes next."""

    def __init__(self, model):
        self.model = model
        self.size = model.base.config.vocab_size
        self.pieces = [self._piece(token) for token in range(self.size)]
        self.lock = threading.Lock()
        self.known = {}

    def _piece(self, token):
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
        known = self.model.tokenizer.convert_ids_to_tokens(token)
        return END.encode() if token == 0 else bytes(letters[letter] for letter in known or "")

    def ids(self, text, *, special=False):
        return self.model.tokenizer([text], add_special_tokens=False, split_special_tokens=not special)["input_ids"][0]

    def next(self, ids):
        """Log-probabilities of every token after the ids."""
        key = tuple(ids)
        with self.lock:
            if key not in self.known:
                with self.model.state(tuned=False) as network:
                    logits = network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
                self.known[key] = logits.float().log_softmax(-1).tolist()
            return self.known[key]


@pytest.fixture(scope="session")
def backed(model):
    """The tiny model as a server knows it."""
    return Backed(model)


@pytest.fixture
def vllm(backed):
    """Gives what vLLM answers (0.32.0) to strings and ids; `bos`: it puts a start token before a string.

    `decoded`: a torn character stands with its "last" token, the others are empty; or "each" is U+FFFD, as elsewhere.
    """

    def make(*, bos=False, decoded="last"):
        def strings(ids):
            if decoded == "each":
                return [backed.pieces[token].decode("utf-8", "replace") for token in ids]
            whole = [b"".join(backed.pieces[t] for t in ids[:n]).decode("utf-8", "ignore") for n in range(len(ids) + 1)]
            return [after[len(before) :] for before, after in itertools.pairwise(whole)]

        def answer(request):
            assert (request["echo"], request["logprobs"], request["max_tokens"]) == (True, 1, 1)
            prompt = request["prompt"]
            ids = [0] * bos + backed.ids(prompt, special=True) if isinstance(prompt, str) else prompt
            wrong = next((token for token in ids if token >= backed.size), None)
            if wrong is not None:
                return refused(400, f"Token id {wrong} is out of vocabulary")
            logp = [None, *(backed.next(ids[:t])[ids[t]] for t in range(1, len(ids)))]
            return ok(completion([*strings(ids), " the"], [*logp, -1.0]))

        return answer

    return make
