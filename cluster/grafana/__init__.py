"""The dashboard of runs in Grafana."""
