package rules

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// What the service keeps in the data of a job that is handed out again while it runs.
const (
	KeyCount    = "retryAfterCount"
	KeyOriginal = "originalNextRun"
)

// member is one name and value of an object, as they were written.
type member struct {
	key   string
	text  []byte // name, colon and value
	value []byte
}

// members takes an object apart. data have been checked.
func members(data []byte) []member {
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return nil
	}
	var all []member
	for dec.More() {
		from := int(dec.InputOffset())
		name, err := dec.Token()
		key, ok := name.(string)
		if err != nil || !ok {
			return nil
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return nil
		}
		end := int(dec.InputOffset())
		text := bytes.TrimLeft(data[from:end], ", \t\r\n")
		all = append(all, member{key: key, text: text, value: value})
	}
	return all
}

// lookup returns the last value of a key, nil if there is none.
func Lookup(data []byte, key string) []byte {
	if !bytes.Contains(data, []byte(key)) {
		return nil
	}
	var value []byte
	for _, m := range members(data) {
		if m.key == key {
			value = m.value
		}
	}
	return value
}

// without returns the object without these keys; all other members stay as they were written.
func Without(data []byte, keys ...string) []byte {
	if !slices.ContainsFunc(keys, func(k string) bool { return bytes.Contains(data, []byte(k)) }) {
		return data
	}
	all := members(data)
	kept := slices.DeleteFunc(slices.Clone(all), func(m member) bool { return slices.Contains(keys, m.key) })
	if len(kept) == len(all) {
		return data
	}
	return compose(kept)
}

// with returns the object with one more member at its end.
func With(data []byte, key string, value []byte) []byte {
	all := members(data)
	text := append(strconv.AppendQuote(nil, key), ':')
	return compose(append(all, member{text: append(text, value...)}))
}

func compose(all []member) []byte {
	out := []byte{'{'}
	for i, m := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.text...)
	}
	return append(out, '}')
}

// retries returns how often a job was handed out in its present run, as its data have it.
func Retries(data []byte) int {
	n, err := strconv.Atoi(string(Lookup(data, KeyCount)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// carry returns fresh data with what the service keeps in old ones.
func Carry(old, fresh []byte) []byte {
	for _, key := range []string{KeyCount, KeyOriginal} {
		if value := Lookup(old, key); value != nil {
			fresh = With(Without(fresh, key), key, value)
		}
	}
	return fresh
}

// asksToEnd tells whether data tell a repeated job to be gone, as {"delete":"true"} does.
func AsksToEnd(data []byte) bool {
	value := string(Lookup(data, "delete"))
	return value == `"true"` || value == "true"
}

// tree reads an object; numbers stay as they were written.
func tree(data []byte) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var m map[string]any
	if dec.Decode(&m) != nil || m == nil {
		return map[string]any{}
	}
	return m
}

// mergePatch applies a JSON merge patch (RFC 7386).
func MergePatch(data, patch []byte) ([]byte, error) {
	merged := patched(tree(data), tree(patch))
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(merged); err != nil {
		return nil, &jobstore.FieldError{Field: "data", Problem: Malformed, Detail: err.Error()}
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

func patched(target, patch map[string]any) map[string]any {
	for key, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(target, key)
		case map[string]any:
			old, ok := target[key].(map[string]any)
			if !ok {
				old = map[string]any{}
			}
			target[key] = patched(old, v)
		default:
			target[key] = v
		}
	}
	return target
}

// sameData tells whether two objects are equal as JSON. Keys in ignored do not count.
func SameData(a, b []byte, ignored ...string) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := tree(a), tree(b)
	for _, key := range ignored {
		delete(x, key)
		delete(y, key)
	}
	return sameValue(x, y)
}

func sameValue(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for key, value := range x {
			other, ok := y[key]
			if !ok || !sameValue(value, other) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, sameValue)
	case json.Number:
		y, ok := b.(json.Number)
		return ok && plainNumber(string(x)) == plainNumber(string(y))
	default:
		return a == b
	}
}

// plainNumber writes a JSON number so that equal numbers have one text, whatever their size: digits without zeros around, and an exponent.
func plainNumber(text string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	exp := int64(0)
	if exponent != "" {
		n, err := strconv.ParseInt(exponent, 10, 64)
		if err != nil || n > 1<<40 || n < -1<<40 {
			return text
		}
		exp = n
	}
	sign := ""
	if rest, ok := strings.CutPrefix(mantissa, "-"); ok {
		sign, mantissa = "-", rest
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exp -= int64(len(fraction))
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	return sign + short + "e" + strconv.FormatInt(exp+int64(len(digits)-len(short)), 10)
}

// keyAttempts is where the data of a job keep how many attempts of its present run were to be repeated.
const KeyAttempts = "runnerRetries"
