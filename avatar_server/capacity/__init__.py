"""What a machine carries: planned from published figures, measured, or simulated."""
