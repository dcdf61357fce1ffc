"""Models in GGUF files."""

from fsd.plugs import Plug

PLUG = Plug(weights="extensions.gguf.model_file:gguf_file")
