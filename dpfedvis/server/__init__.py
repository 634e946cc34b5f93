"""The server: a program that asks sites, averages, learns landmarks and publishes. It never holds a record."""

from dpfedvis.server.program import Program, ProgramSettings
from dpfedvis.server.published import Published

__all__ = ["Program", "ProgramSettings", "Published"]
