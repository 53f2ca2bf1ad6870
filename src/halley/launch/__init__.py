"""Plans of training as launch flags of training frameworks, and flags read again."""
