package cli

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/compress"
)

// keyLine is a line of a key file: an id, the key, and further words.
type keyLine struct {
	id     string
	secret []byte
	rest   []string
}

// keyLines reads a key file. Empty lines and lines with # are skipped. Errors never contain a part
// of a key.
func keyLines(path string, good func(keyLine) bool, form string) ([]keyLine, error) {
	f, err := os.Open(path) //nolint:gosec // the user names a file of their own
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var keys []keyLine
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		k := keyLine{id: words[0]}
		err := errors.New("no key")
		if len(words) > 1 {
			k.secret, err = base64.StdEncoding.DecodeString(words[1])
			k.rest = words[2:]
		}
		if err != nil || !good(k) {
			return nil, fmt.Errorf("line %d of %s is not %s", n, path, form)
		}
		keys = append(keys, k)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has none", path)
	}
	return keys, nil
}

// Keys reads the key file for commands. It returns nil without one.
func (a *App) Keys() (*control.Keys, error) {
	if a.ControlKeys == "" {
		return nil, nil
	}
	list, err := keyLines(a.ControlKeys, func(k keyLine) bool { return len(k.secret) >= control.MinKey && len(k.rest) == 0 },
		fmt.Sprintf("an id, a space and a key of %d bytes and more in base64", control.MinKey))
	if err != nil {
		return nil, fmt.Errorf("%w: control keys: %w", ErrUsage, err)
	}
	keys := &control.Keys{Active: list[0].id, ByID: make(map[string][]byte)}
	for _, k := range list {
		if _, twice := keys.ByID[k.id]; twice {
			return nil, fmt.Errorf("%w: control keys: %s has two keys of one id", ErrUsage, a.ControlKeys)
		}
		keys.ByID[k.id] = k.secret
	}
	return keys, nil
}

// signs is the word after a key that signs and does not encrypt.
const signs = "sign"

// Sealer reads the key file for sealed tasks and results. It returns nil without one.
func (a *App) Sealer() (serializer.Sealer, error) {
	if a.KeyFile == "" {
		return nil, nil
	}
	list, err := keyLines(a.KeyFile, func(k keyLine) bool { return len(k.rest) == 0 || len(k.rest) == 1 && k.rest[0] == signs },
		fmt.Sprintf("an id, a space and 32 bytes in base64, and %q for a key that only signs", signs))
	if err != nil {
		return nil, fmt.Errorf("%w: keys: %w", ErrUsage, err)
	}
	keys := make([]serializer.Key, len(list))
	for i, k := range list {
		keys[i] = serializer.Key{ID: k.id, Secret: k.secret, SignOnly: len(k.rest) > 0}
	}
	ring, err := serializer.NewKeyRing(keys[0], keys[1:]...)
	if err != nil {
		return nil, fmt.Errorf("%w: keys: %w", ErrUsage, err)
	}
	return ring, nil
}

// Compression reads each compression of this module and compresses nothing.
func Compression() (serializer.Compression, error) {
	zstd, err := compress.NewZstd()
	if err != nil {
		return serializer.Compression{}, err
	}
	return serializer.Compression{Compressors: []serializer.Compressor{zstd, compress.S2{}, &compress.Gzip{}}}, nil
}

// Codec reads tasks and results for the output: plain ones, and sealed ones if keys are given.
func (a *App) Codec() (*wire.Codec, error) {
	sealer, err := a.Sealer()
	if err != nil {
		return nil, err
	}
	c, err := Compression()
	if err != nil {
		return nil, err
	}
	return wire.New(serializer.Wire{Sealer: sealer, AcceptPlain: true, Compression: c, MaxBody: maxArguments})
}

// Remedy returns a hint for sealed data that could not be opened.
func (a *App) Remedy(err error) error {
	if a.KeyFile == "" && errors.Is(err, serializer.ErrUnknownType) {
		return fmt.Errorf("%w; --key-file names the keys", err)
	}
	return err
}
