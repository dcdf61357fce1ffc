"""Was a whole data set, such as a benchmark, in the training data? Several tests in one table.

`__main__` is the command, `outcomes` runs the tests.
"""
