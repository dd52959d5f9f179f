"""What a recording leaves: its folder, streams, manifest, and whether it is complete."""
