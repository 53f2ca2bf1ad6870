"""``python -m halley`` is the ``halley`` command."""

from halley.cli.start import main

if __name__ == "__main__":
    main()
