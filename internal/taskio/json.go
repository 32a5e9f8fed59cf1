package taskio

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Marshal returns v as JSON without HTML escapes.
func Marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Unmarshal decodes JSON into v. Values of type any get whole numbers as int64 and other numbers as
// float64.
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

// exactly decodes JSON into v with numbers as json.Number, then calls makePlain to convert them.
func exactly(data []byte, v any, makePlain func()) error {
	if !json.Valid(data) {
		return json.Unmarshal(data, v) // returns the syntax error
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
	return v // a number that fits neither type stays a json.Number
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
