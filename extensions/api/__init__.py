"""Models behind an API of completions or chats: scores and replies of a service."""
