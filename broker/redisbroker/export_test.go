package redisbroker

// ScriptHash returns the digest by which the server knows a script.
func ScriptHash(name string) string {
	s, err := loadScript(name, "plain")
	if err != nil {
		panic(err)
	}
	return s.Hash()
}

// Source returns a script as it is sent to the server.
func Source(name string) (string, error) {
	s, err := loadScript(name, "plain")
	if err != nil {
		return "", err
	}
	return s.source, nil
}

var (
	Decode    = decode
	ParseDead = parseDead
	Frames    = splitFrames
	KeyOf     = keyOf
	ParseKey  = parseKey
)
