"""Jobs: from the names of files to a folder of results."""
