package rules

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// AsksToEnd reports whether data, a JSON object, end the repeats of a job: its key "delete" has the
// value "true" or true.
func AsksToEnd(data []byte) bool {
	if !bytes.Contains(data, []byte(`"delete"`)) {
		return false
	}
	value := tree(data)["delete"]
	return value == "true" || value == true
}

// tree decodes a JSON object. Numbers keep their text (json.Number). Returns an empty map if data
// are not an object.
func tree(data []byte) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var m map[string]any
	if dec.Decode(&m) != nil || m == nil {
		return map[string]any{}
	}
	return m
}

// MergePatch returns data changed by a JSON merge patch (RFC 7386). Both must be JSON objects; any
// other text counts as an empty object. A null in patch deletes a key. Numbers keep their text. The
// size of the result is not checked. Returns a FieldError if the result cannot be encoded.
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

// patched applies a merge patch to target, which it changes and returns. A nil value deletes a key.
// An object is merged into the old object, or into an empty one. Any other value replaces the old
// one.
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

// SameData reports whether two JSON objects are equal as values, whatever the order of their keys.
// Numbers are equal if their values are, such as 1 and 1.0.
func SameData(a, b []byte) bool {
	return bytes.Equal(a, b) || sameValue(tree(a), tree(b))
}

// sameValue reports whether two decoded JSON values are equal. Numbers are equal if their values
// are. Lists are equal if they have equal elements in the same order.
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

// plainNumber returns the same text for equal JSON numbers of any size: sign, digits without
// leading and trailing zeros, and an exponent. Zero is "0". A number with an extreme exponent is
// returned as it is, so it equals only the same text.
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
