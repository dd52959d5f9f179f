"""Altair charts, made from panels and from the rows of studies."""
