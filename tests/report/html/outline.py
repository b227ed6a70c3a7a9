"""What a page is made of, for tests that look into one."""

from html.parser import HTMLParser


class Outline(HTMLParser):
    """Elements that are open and closed in order, with their attributes, and the text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(document)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append((tag, dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.seen}

    @property
    def links(self) -> set[str]:
        return {link for _, attrs in self.seen if (link := attrs.get("href"))}
