package wire

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// goldenPrepared is the output of version 1. It never changes: jobs wait for days, and another
// version may publish them.
const goldenPrepared = `{"swarmiji":1,"queue":"mail","message":{"v":1,"id":"task1","generation":2,"contentType":"application/json",` +
	`"headers":[{"key":"i","int":"-9223372036854775808"},{"key":"s","text":"ü"}],"properties":[{"key":"reply-to","value":"n"}],"body":"AAEC/w==",` +
	`"priority":7,"expiresMillis":1795334400123}}`

// goldenBare is the output for a message of the module's own formats.
const goldenBare = `{"swarmiji":1,"queue":"mail","message":{"v":1,"id":"task1","contentType":"application/x-swarmiji","body":"AQI=","priority":100}}`

func TestGoldenPrepared(t *testing.T) {
	for _, c := range []struct {
		golden string
		want   *broker.Message
	}{
		{goldenPrepared, &broker.Message{
			ID: "task1", Generation: 2, ContentType: "application/json", Priority: 7, Expires: time.Date(2026, 11, 22, 8, 0, 0, 123e6, time.UTC),
			Headers:    map[string]any{"s": "ü", "i": int64(math.MinInt64)},
			Properties: map[string]string{"reply-to": "n"}, Body: []byte{0, 1, 2, 255},
		}},
		{goldenBare, &broker.Message{ID: "task1", ContentType: "application/x-swarmiji", Priority: 100, Body: []byte{1, 2}}},
	} {
		data, err := Prepare("mail", c.want)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.golden, string(data)); d != "" {
			t.Errorf("written as something else (-golden +got):\n%s", d)
		}
		queue, got, err := ReadPrepared([]byte(c.golden))
		if err != nil || queue != "mail" {
			t.Fatalf("queue %q, %v", queue, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("read as something else (-want +got):\n%s", d)
		}
	}
}

func TestPreparedIsRefused(t *testing.T) {
	if _, err := Prepare("q", &broker.Message{ID: "1", Headers: map[string]any{"x": 1}}); !errors.Is(err, broker.ErrMalformed) {
		t.Errorf("writing a header of another type: %v", err)
	}
	for name, data := range map[string]string{
		"nothing":          "",
		"another's data":   `{"n":1}`,
		"a newer version":  `{"swarmiji":2,"queue":"q","message":{"v":1,"id":"1","priority":1}}`,
		"no message":       `{"swarmiji":1,"queue":"q"}`,
		"no id":            `{"swarmiji":1,"queue":"q","message":{"v":1,"priority":1}}`,
		"no queue":         `{"swarmiji":1,"message":{"v":1,"id":"1","priority":1}}`,
		"a strange header": `{"swarmiji":1,"queue":"q","message":{"v":1,"id":"1","priority":1,"headers":[{"key":"x","date":"now"}]}}`,
		"a bad number":     `{"swarmiji":1,"queue":"q","message":{"v":1,"id":"1","priority":1,"headers":[{"key":"x","int":"1.5"}]}}`,
		"a bad body":       `{"swarmiji":1,"queue":"q","message":{"v":1,"id":"1","priority":1,"body":"?"}}`,
	} {
		if _, _, err := ReadPrepared([]byte(data)); !errors.Is(err, ErrPrepared) || !errors.Is(err, task.ErrBadArgs) {
			t.Errorf("reading %s: %v", name, err)
		}
	}
}
