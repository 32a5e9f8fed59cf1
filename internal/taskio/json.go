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

// Unmarshal decodes JSON into v. If v is a *any, *[]any or *map[string]any, whole numbers become
// int64 and other numbers float64. Returns the error of encoding/json.
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
// Returns the error of encoding/json.
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

// plain returns v with each json.Number in it as int64 or float64. It changes lists and maps in
// place. A number that fits neither type stays a json.Number.
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

// plainList replaces the elements of list by the results of plain.
func plainList(list []any) {
	for i := range list {
		list[i] = plain(list[i])
	}
}

// plainMap replaces the values of m by the results of plain.
func plainMap(m map[string]any) {
	for k := range m {
		m[k] = plain(m[k])
	}
}
