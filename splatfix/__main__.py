"""``python -m splatfix`` is the same program as ``splatfix``."""

from splatfix.cli import main

if __name__ == "__main__":
    main()
