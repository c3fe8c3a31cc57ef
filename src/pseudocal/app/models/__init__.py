"""Model files: open them, run them, write them again with the temperature inside."""
