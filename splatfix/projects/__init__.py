"""Projects: what their files declare is judged as if it were installed, and mended by the smallest edit."""
