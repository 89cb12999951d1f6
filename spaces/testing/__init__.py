"""Suites for layers that work on scheduled programs; users take them from `tuner.testing`."""
