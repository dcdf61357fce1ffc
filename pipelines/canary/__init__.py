"""Canaries: `make` draws and seals one random variant per document to publish, `rank` tests it among the others.

`files` reads and writes the folder that both share, `scoring` scores all variants; `demo` shows the whole on an
embedded model.
"""
