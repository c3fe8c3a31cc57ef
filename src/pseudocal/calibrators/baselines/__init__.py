"""The calibrators that PseudoCal is compared with, one per file."""
