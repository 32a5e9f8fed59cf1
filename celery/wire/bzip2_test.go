package wire_test

// bzip2OfPlain is [[1, 2], {}, {}] as Python's bz2 compresses it.
const bzip2OfPlain = "425a6839314159265359884c6f440000049a8040043000000a000a2000310c081a68c21cd7633d121478bb9229c2848442637a20"
