"""A certificate as one HTML file: no network, no library, readable on a phone, on paper and by a screen reader."""

from splatfix.report.html.page import budget_page, certificate_page, matrix_page, scene_page

__all__ = ["budget_page", "certificate_page", "matrix_page", "scene_page"]
