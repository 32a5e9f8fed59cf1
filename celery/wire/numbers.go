package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/utf"
)

// withoutNumbers returns a copy of a generic value in which each [json.Number] is an int64, a
// uint64 or a float64. The library of msgpack would write a json.Number as a text. Returns an error
// for a whole number of more than 64 bits and for a number that no float64 can hold.
func withoutNumbers(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		return plainNumber(v.String())
	case []any:
		list := make([]any, len(v))
		for i := range v {
			var err error
			if list[i], err = withoutNumbers(v[i]); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		all := make(map[string]any, len(v))
		for key := range v {
			var err error
			if all[key], err = withoutNumbers(v[key]); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return v, nil
}

// plainNumber returns the number in text for withoutNumbers.
func plainNumber(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !strings.ContainsAny(text, ".eE") {
		return nil, fmt.Errorf("msgpack cannot hold the number %s", utf.Cut(text, 64))
	}
	return f, nil
}
