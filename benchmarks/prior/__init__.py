"""Makes the prior that ships: what templates' estimates get wrong, learned from drawn layers."""
