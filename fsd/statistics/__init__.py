"""Pure statistics of arrays, which know no texts: intervals, metrics, conformal p-values, corrections."""
