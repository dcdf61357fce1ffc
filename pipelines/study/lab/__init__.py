"""The laboratory, `fsd study lab`: targets whose every training text is known, and what each score sees in them."""
