"""Jobs: take the names of files, write a folder of results."""
