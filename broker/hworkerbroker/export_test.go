package hworkerbroker

// StampLua is how the scripts write times.
var StampLua = stampLua

// Encode and Decode are those of payloads.
var (
	Encode = encode
	Decode = decode
)
