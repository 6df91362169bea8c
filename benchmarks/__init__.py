"""Measurements. They import the package and are never imported by it."""
