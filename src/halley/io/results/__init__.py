"""Result and plan files."""
