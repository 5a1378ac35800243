"""Files that arrive: each is ingested once, in numbered batches whose manifests are frozen before anything is read."""
