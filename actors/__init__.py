"""The work of a worker: generate, build, run, each in a child process. Knows TVM."""
