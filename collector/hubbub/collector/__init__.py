"""The service that ingests reports. The decoder uses `hubbub.storage` without the web."""
