"""The lab: everything needed to reproduce the paper."""
