"""Pages: one HTML file each, no network, no library, readable on a phone, on paper and by a screen reader."""
