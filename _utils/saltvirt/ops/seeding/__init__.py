"""Seeding: which identity a guest gets, by which method, and how it is written."""
