package hworkerbroker

import "github.com/swarmiji/swarmiji/broker"

// StampLua is how the scripts write times.
var StampLua = stampLua

// Encode and Decode are those of payloads.
var (
	Encode = func(m *broker.Message) (string, error) { return encode(m, "") }
	Decode = decode
)
