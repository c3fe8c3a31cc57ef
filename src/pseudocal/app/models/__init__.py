"""Model files: open them, run them, and write them with the temperature inside."""
