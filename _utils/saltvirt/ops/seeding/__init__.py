"""Seeding: decide a guest's identity and seed method, and write the seed."""
