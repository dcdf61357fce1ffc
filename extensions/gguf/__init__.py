"""Models in GGUF files."""

from fsd.api import Plug

PLUG = Plug(weights="extensions.gguf.model_file:gguf_file")
