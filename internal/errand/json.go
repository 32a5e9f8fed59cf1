package errand

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Marshal writes JSON without the escapes that are meant for web pages.
func Marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Unmarshal reads JSON. Where v takes anything, whole numbers become int64 and others float64.
func Unmarshal(data []byte, v any) error {
	switch to := v.(type) {
	case *any:
		return exactly(data, to, func() { *to = plain(*to) })
	case *[]any:
		return exactly(data, to, func() { plainList(*to) })
	case *map[string]any:
		return exactly(data, to, func() { plainMap(*to) })
	}
	return json.Unmarshal(data, v)
}

// exactly reads JSON with its numbers as they are written, and then has them made plain.
func exactly(data []byte, v any, makePlain func()) error {
	if !json.Valid(data) {
		return json.Unmarshal(data, v) // which says what is wrong
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	makePlain()
	return nil
}

func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil && !strings.ContainsAny(v.String(), ".eE") {
			return n
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	case []any:
		plainList(v)
	case map[string]any:
		plainMap(v)
	}
	return v // a number that fits nowhere stays as it is written
}

func plainList(list []any) {
	for i := range list {
		list[i] = plain(list[i])
	}
}

func plainMap(m map[string]any) {
	for k := range m {
		m[k] = plain(m[k])
	}
}
