"""Synthetic viewers: they join as real ones do, and measure what they receive."""
