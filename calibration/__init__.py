"""Fits of machine costs to measurements. Empty so far."""
