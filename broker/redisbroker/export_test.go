package redisbroker

// ScriptHash returns the digest by which the server knows a script.
func ScriptHash(name string) string {
	s, err := loadPlain(name)
	if err != nil {
		panic(err)
	}
	return s.Hash()
}

// Source returns a script as it is sent to the server.
func Source(name string) (string, error) {
	s, err := loadPlain(name)
	if err != nil {
		return "", err
	}
	return s.source, nil
}

// loadPlain loads a script for queues that are not fair.
func loadPlain(name string) (*script, error) {
	lib, err := loadLibrary("plain")
	if err != nil {
		return nil, err
	}
	return lib.load(name)
}

var (
	Decode    = decode
	ParseDead = parseDead
	Frames    = splitFrames
	KeyOf     = keyOf
	ParseKey  = parseKey
)
