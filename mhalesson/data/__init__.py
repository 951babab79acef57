"""Data files the lessons load, each beside the script that made it."""
