"""Models behind an API of completions or chats: scores and replies of a service."""

from fsd.api import Plug

PLUG = Plug(service="extensions.api.opening:scorers")
