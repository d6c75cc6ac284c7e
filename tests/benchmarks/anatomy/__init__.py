"""Tests of the anatomy of a step."""
