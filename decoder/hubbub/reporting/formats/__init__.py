"""One module a format. Formats know what results are made of, never what they are about."""
