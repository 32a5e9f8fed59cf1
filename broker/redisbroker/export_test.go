package redisbroker

// ScriptHash returns the digest by which the server knows a script.
func ScriptHash(name string) string {
	s, err := plainScript(name)
	if err != nil {
		panic(err)
	}
	return s.Hash()
}

// Source returns a script as it is sent to the server.
func Source(name string) (string, error) {
	s, err := plainScript(name)
	if err != nil {
		return "", err
	}
	return s.source, nil
}

func plainScript(name string) (*script, error) {
	lib, err := library("plain")
	if err != nil {
		return nil, err
	}
	return loadScript(name, "plain", lib)
}

var (
	Decode    = decode
	ParseDead = parseDead
	Frames    = splitFrames
	KeyOf     = keyOf
	ParseKey  = parseKey
)
