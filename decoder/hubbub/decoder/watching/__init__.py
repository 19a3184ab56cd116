"""The standing report: what a file asks for is decoded once a day, kept, and reported."""
