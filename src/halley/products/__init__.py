"""One Python function per product, for what the commands of the same name do. Each is loaded when it is first used."""
