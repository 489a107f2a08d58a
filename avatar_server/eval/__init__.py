"""Evaluation: how often decisions are right, and how long they take."""
