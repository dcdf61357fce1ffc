"""Everything that opens a connection: model hub, data files, web services."""
