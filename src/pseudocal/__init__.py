"""Trustworthy confidence for classifiers on shifted data, without labels and without source data."""
