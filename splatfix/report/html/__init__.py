"""A certificate as one HTML file: no network, no library, readable on a phone, on paper and by a screen reader."""

from splatfix.report.html.page import certificate_page, matrix_page, page

__all__ = ["certificate_page", "matrix_page", "page"]
