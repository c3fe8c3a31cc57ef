"""The lab: all it takes to repeat the paper."""
