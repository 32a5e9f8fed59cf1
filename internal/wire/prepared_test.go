package wire

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// goldenPrepared is what version 1 writes. It never changes: jobs wait for days, and who sends them may be another version.
const goldenPrepared = `{"swarmiji":1,"id":"task1","queue":"mail","generation":2,"type":"application/json","priority":7,` +
	`"expires":"2026-11-22T08:00:00.000123Z","headers":{"b":{"bytes":"AP8="},"f":{"float":"1e+100"},"i":{"int":"-9223372036854775808"},"s":{"text":"ü"},` +
	`"t":{"bool":"true"}},"properties":{"reply-to":"n"},"body":"AAEC/w=="}`

// goldenBare is that of a message of our own formats.
const goldenBare = `{"swarmiji":1,"id":"task1","queue":"mail","type":"application/x-swarmiji","priority":100,"body":"AQI="}`

func TestGoldenPrepared(t *testing.T) {
	for _, c := range []struct {
		golden string
		want   *broker.Message
	}{
		{goldenPrepared, &broker.Message{
			ID: "task1", Generation: 2, ContentType: "application/json", Priority: 7, Expires: time.Date(2026, 11, 22, 8, 0, 0, 123000, time.UTC),
			Headers:    map[string]any{"s": "ü", "b": []byte{0, 255}, "t": true, "i": int64(math.MinInt64), "f": 1e100},
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

func TestPreparedComesBack(t *testing.T) {
	text := rapid.String()
	header := rapid.OneOf(
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) any { return b }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1)})), func(f float64) any { return f }),
	)
	rapid.Check(t, func(t *rapid.T) {
		want := &broker.Message{
			ID: rapid.StringMatching(`[a-z0-9]{1,20}`).Draw(t, "id"), Generation: rapid.IntRange(0, 1<<30).Draw(t, "generation"), ContentType: text.Draw(t, "type"),
			Headers: rapid.MapOf(text, header).Draw(t, "headers"), Properties: rapid.MapOf(text, text).Draw(t, "properties"),
			Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"), Priority: rapid.IntRange(0, task.MaxPriority).Draw(t, "priority"),
			Expires: time.UnixMicro(rapid.Int64Range(0, 1<<50).Draw(t, "expires")).UTC(),
		}
		data, err := Prepare("q", want)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := ReadPrepared(data)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); d != "" {
			t.Fatalf("another message (-want +got):\n%s", d)
		}
	})
}

func TestPreparedIsRefused(t *testing.T) {
	for name, m := range map[string]*broker.Message{
		"a header of another type": {ID: "1", Headers: map[string]any{"x": 1}},
		"a header without UTF-8":   {ID: "1", Headers: map[string]any{"x": "\xff"}},
		"a key without UTF-8":      {ID: "1", Headers: map[string]any{"\xff": "x"}},
		"a property without UTF-8": {ID: "1", Properties: map[string]string{"x": "\xff"}},
	} {
		if _, err := Prepare("q", m); !errors.Is(err, broker.ErrMalformed) {
			t.Errorf("writing %s: %v", name, err)
		}
	}
	for name, data := range map[string]string{
		"nothing":          "",
		"another's data":   `{"n":1}`,
		"a newer version":  `{"swarmiji":2,"id":"1","queue":"q","body":""}`,
		"no id":            `{"swarmiji":1,"queue":"q","body":""}`,
		"no queue":         `{"swarmiji":1,"id":"1","body":""}`,
		"a strange header": `{"swarmiji":1,"id":"1","queue":"q","headers":{"x":{"date":"now"}},"body":""}`,
		"a header of two":  `{"swarmiji":1,"id":"1","queue":"q","headers":{"x":{"int":"1","text":"1"}},"body":""}`,
		"a bad number":     `{"swarmiji":1,"id":"1","queue":"q","headers":{"x":{"int":"1.5"}},"body":""}`,
		"a bad body":       `{"swarmiji":1,"id":"1","queue":"q","body":"?"}`,
	} {
		if _, _, err := ReadPrepared([]byte(data)); !errors.Is(err, ErrPrepared) || !errors.Is(err, task.ErrBadArgs) {
			t.Errorf("reading %s: %v", name, err)
		}
	}
}
