"""Tables for a terminal, made of plain rows alone."""
