"""Access counts, cycles and energies of Halley against those of Timeloop, mapping by mapping (docs/validation.md).

- `files`        what a Timeloop case says: architecture, problem, mapping, energies, and the figures that Timeloop reported
- `convert`      the case as a Halley chip, workload and tree
- `convention`   Halley's counts in Timeloop's words
- `compare`      both next to each other; ``python -m validation.timeloop [FOLDER]`` prints the table
- `convolutions` layers of ResNet-50 and mappings of them, without figures of Timeloop
"""
