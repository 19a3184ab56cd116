"""What the site has beside its pages: tables from the code, pictures, what commands print."""
