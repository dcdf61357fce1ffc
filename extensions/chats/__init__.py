"""Chats as texts: rows of messages, and what a template of the model makes of them."""

from fsd.api import Plug

PLUG = Plug(row="extensions.chats.rows:chat_in", reader="extensions.chats.reader:ChatReader")
