"""Programs bound by memory on a GPU: rows, columns, elements one by one, transposes."""
