"""What programs of tests begin with that run in a process of their own, as our own processes do."""

LEAN = "from spaces.ir.lean_tvm import import_tvm_lean\nimport_tvm_lean()\n"
