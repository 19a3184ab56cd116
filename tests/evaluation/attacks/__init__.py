"""Programs that attack what hubbub claims; `make attacks` runs all, the tests run them in short."""
