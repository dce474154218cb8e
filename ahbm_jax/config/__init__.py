"""YAML files to checked machines, workloads and benches; see `load`. Importing this is free."""
