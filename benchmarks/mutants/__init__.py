"""What the tests catch: faults planted into the product's code at random places, and who notices.

    python -m benchmarks.mutants draw --number 60 --seed 37 > mutants.json
    python -m benchmarks.mutants cover TREE coverage.sqlite
    python -m benchmarks.mutants judge mutants.json coverage.sqlite TREE > judged.json
    python -m benchmarks.mutants again judged.json coverage.sqlite TREE

`draw` says which mutants there are, by cosmic-ray's operators, and plants none. `cover` runs the
tests of a checkout once and keeps which test runs which line, also in the processes that tests
start. `judge` plants each mutant into that checkout, runs the tests that cover its line, and takes
it out again. `again` asks the tests that caught a mutant whether they still do. TREE is a checkout
of its own, in which nobody else works. The extra `mutants` brings what this needs.
"""
