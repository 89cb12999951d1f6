"""From a Relax graph to tensor programs and tasks."""
