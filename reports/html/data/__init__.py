"""What a page shows, read from the store and made small: points, spans, shares, one JSON object."""
