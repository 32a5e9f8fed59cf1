package redisbroker_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
)

// FuzzStored shows that reading any stored value neither panics nor returns more data than it
// holds.
func FuzzStored(f *testing.F) {
	f.Add("id", "")
	f.Add("~{id} 7", "{\"task\":\"a\"}")
	f.Add("a 1", "\x01\x00\x00\x00\x64\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x04tbody")
	f.Add("a -1", "\x01\x00\x00\x00\x64\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x81\xa1a\xc3\x80body")
	f.Add("", "\x01\x00\x00\x00\x64\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\xdf\xff\xff\xff\xffx")
	f.Fuzz(func(t *testing.T, key, value string) {
		var m broker.Message
		var types string
		redisbroker.Decode(&m, key, value, &types)
		size := len(m.Body) + len(m.ContentType)
		for k, v := range m.Headers {
			size += len(k)
			switch v := v.(type) {
			case string:
				size += len(v)
			case []byte:
				size += len(v)
			case bool, int64, float64:
			default:
				t.Errorf("a header is a %T", v)
			}
		}
		for k, v := range m.Properties {
			size += len(k) + len(v)
		}
		if m.Generation < 0 || size > len(value)+len("application/json") {
			t.Errorf("%q, %q gives %+v", key, value, m)
		}
		d := redisbroker.ParseDead("q", value)
		if d.Message == nil || len(d.Reason)+len(d.Message.Body) > len(value) {
			t.Errorf("%q gives %+v", value, d)
		}
		size = 0
		for _, part := range redisbroker.Frames(value) {
			s, _ := part.(string)
			size += len(s)
		}
		if size > len(value) {
			t.Errorf("the parts of %q have %d bytes", value, size)
		}
	})
}

// TestKeys shows that no two messages have the same key, and that no key begins like a JSON text.
func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[!-~]{1,20}`).Draw(t, "id")
		generation := rapid.IntRange(0, 1<<31-2).Draw(t, "generation")
		key := redisbroker.KeyOf(id, generation)
		gotID, gotGeneration := redisbroker.ParseKey(key)
		if diff := cmp.Diff([]any{id, generation}, []any{gotID, gotGeneration}); diff != "" || strings.HasPrefix(key, "{") {
			t.Fatalf("key %q:\n%s", key, diff)
		}
	})
}
