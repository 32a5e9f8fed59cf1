package redisbroker

// ScriptHash returns the digest by which the server knows a script.
func ScriptHash(name string) string {
	s, err := loadScript(name)
	if err != nil {
		panic(err)
	}
	return s.Hash()
}

// Source is a script as the server gets it.
func Source(name string) (string, error) {
	s, err := loadScript(name)
	if err != nil {
		return "", err
	}
	return s.source, nil
}

var (
	Decode    = decode
	ParseDead = parseDead
	Frames    = frames
	KeyOf     = keyOf
	ParseKey  = parseKey
)
