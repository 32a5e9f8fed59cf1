package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// FuzzDecode reads any body. A decoded task can be written, and the second writing is that of the
// first: a retry changes nothing.
func FuzzDecode(f *testing.F) {
	for _, m := range captured {
		f.Add(m.Body, m.ContentType == wire.ContentMsgpack)
	}
	f.Fuzz(func(t *testing.T, body []byte, packed bool) {
		m := &broker.Message{ContentType: "application/json", Headers: map[string]any{"task": "a", "id": "id-1", "group": "g"}, Body: body}
		if packed {
			m.ContentType = wire.ContentMsgpack
		}
		e, err := wire.Format{}.Decode(m)
		if err != nil {
			if !errors.Is(err, serializer.ErrMalformed) {
				t.Fatalf("%v, want ErrMalformed", err)
			}
			return
		}
		first, err := wire.Format{}.Encode(e)
		if err != nil {
			if errors.Is(err, serializer.ErrValue) {
				return // such as a chain that is nested too deep once it is written again
			}
			t.Fatal(err)
		}
		back, err := wire.Format{}.Decode(first)
		if err != nil {
			t.Fatalf("%v, for %q", err, first.Body)
		}
		second, err := wire.Format{}.Encode(back)
		if err != nil {
			t.Fatalf("%v, for %q", err, first.Body)
		}
		if !bytes.Equal(first.Body, second.Body) {
			t.Fatalf("written twice, -first +second:\n%s", cmp.Diff(string(first.Body), string(second.Body)))
		}
		var all wire.Args
		if e.Name != task.GatherName {
			var s serializer.Serializer = wire.JSONArgs{}
			if packed {
				s = wire.MsgpackArgs{}
			}
			if err := s.Unmarshal(e.Args, &all); err != nil {
				t.Fatalf("the arguments %q: %v", e.Args, err)
			}
		}
	})
}

// FuzzDecodeResult reads any document. A decoded record can be written and read again.
func FuzzDecodeResult(f *testing.F) {
	for _, r := range records() {
		for _, contentType := range []string{serializer.ContentJSON, serializer.ContentMsgpack} {
			data, err := wire.EncodeResult(&r, contentType)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, _, err := wire.DecodeResult(data)
		if err != nil {
			return
		}
		out, err := wire.EncodeResult(&r, "")
		if err != nil {
			t.Fatalf("%v, for %+v", err, r)
		}
		if _, _, err := wire.DecodeResult(out); err != nil {
			t.Fatalf("%v, for %s", err, out)
		}
	})
}
