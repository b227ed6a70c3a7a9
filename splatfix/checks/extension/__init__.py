"""The family ``extension``: native modules of installed packages, and what is compiled at first use."""
