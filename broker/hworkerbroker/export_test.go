package hworkerbroker

import "github.com/swarmiji/swarmiji/broker"

// StampLua is the Lua function that formats times for the scripts.
var StampLua = stampLua

// Encode and Decode convert between messages and payloads.
var (
	Encode = func(m *broker.Message) (string, error) { return encode(m, "") }
	Decode = decode
)
