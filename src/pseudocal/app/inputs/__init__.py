"""Unlabelled inputs from files, and ground truth to evaluate with."""
