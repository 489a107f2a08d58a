"""Metrics, turn traces and logs."""
