"""Local disk and object stores: paths, listing, locks."""
