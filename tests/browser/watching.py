"""A page under observation: what it complains about, and whom it asks."""

from playwright.sync_api import ConsoleMessage, Page, Request


class Watched:
    """A page, and all that it complained about or asked for.

    complaints: What came on the console, violations of the content policy among it.
    addresses: Every address that was asked.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.addresses: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._see)

    def _hear(self, message: ConsoleMessage) -> None:
        self.complaints.append(message.text)

    def _see(self, request: Request) -> None:
        self.addresses.append(request.url)
