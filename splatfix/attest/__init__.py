"""A signed statement about a report folder: in-toto in a DSSE envelope, ed25519 keys, and what of it still holds."""
