"""What a command found: the report, its tables and figures, for the terminal and as a page."""
