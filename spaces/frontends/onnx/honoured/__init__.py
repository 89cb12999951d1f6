"""What the converters of TVM's importer honour of a node, so that they get nothing else."""
