"""Scripts for the maintainers of handful; the package does not use them."""
