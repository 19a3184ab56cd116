"""The service that ingests reports. The decoder uses `hubbub.collector.store` without the web."""
