"""Benchmarks: figures with how they were taken."""
