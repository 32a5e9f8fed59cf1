package msgpack

import (
	"bytes"
	"testing"
	"time"

	lib "github.com/vmihailenco/msgpack/v5"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

type sumArgs struct{ A, B int }

// addEnvelope returns the task add(1, 2) as a producer sends it.
func addEnvelope(tb testing.TB) *task.Envelope {
	tb.Helper()
	args, err := Serializer{}.Marshal(sumArgs{1, 2})
	if err != nil {
		tb.Fatal(err)
	}
	return &task.Envelope{
		Version: 1, ID: "01920f4e-7a3b-7cc1-9b0e-0123456789ab", Name: "add",
		ContentType: serializer.ContentMsgpack, Args: args,
		SentAt: time.UnixMilli(1760000000123).UTC(),
		Origin: "worker-7.example.org", ReplyTo: "worker-7.example.org",
	}
}

func TestSizeAndAllocations(t *testing.T) {
	e := addEnvelope(t)
	m, err := Compact{}.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Body) > 90 {
		t.Errorf("add(1, 2) takes %d bytes, want at most 90: the size is a promise of the format", len(m.Body))
	}
	t.Logf("add(1, 2): %d bytes", len(m.Body))
	if n := testing.AllocsPerRun(200, func() { _, _ = Compact{}.Encode(e) }); n > 3 {
		t.Errorf("Encode allocates %v times, want at most 3", n)
	}
	if n := testing.AllocsPerRun(200, func() { _, _ = Compact{}.Decode(m) }); n > 5 {
		t.Errorf("Decode allocates %v times, want at most 5", n)
	}
	if n := testing.AllocsPerRun(200, func() { _ = Scan(m.Body) }); n > 0 {
		t.Errorf("Scan allocates %v times, want none", n)
	}
}

func BenchmarkCompactEncode(b *testing.B) {
	e := addEnvelope(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Compact{}).Encode(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompactDecode(b *testing.B) {
	m, err := Compact{}.Encode(addEnvelope(b))
	if err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct {
		name, id string
	}{{"id in message", m.ID}, {"id in body only", ""}} {
		b.Run(bench.name, func(b *testing.B) {
			m := &broker.Message{ID: bench.id, ContentType: m.ContentType, Body: m.Body}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := (Compact{}).Decode(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMsgpackMarshal(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Serializer{}).Marshal(sumArgs{1, 2}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMsgpackUnmarshal(b *testing.B) {
	data, err := Serializer{}.Marshal(sumArgs{1, 2})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var args sumArgs
		if err := (Serializer{}).Unmarshal(data, &args); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	m, err := Compact{}.Encode(addEnvelope(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := Scan(m.Body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLibraryEnvelope encodes and decodes the same pairs with the library's streaming encoder
// and decoder, and by hand. It is the reason why Compact is written by hand. Both run without the
// checks of Encode and Decode.
func BenchmarkLibraryEnvelope(b *testing.B) {
	e := addEnvelope(b)
	write := func() ([]byte, error) {
		u, _ := parseUUID(string(e.ID))
		w := bytes.NewBuffer(make([]byte, 0, 96))
		enc := lib.GetEncoder()
		enc.Reset(w)
		enc.UseCompactInts(true)
		err := enc.EncodeMapLen(8)
		step := func(key int64, f func() error) {
			if err == nil {
				if err = enc.EncodeInt(key); err == nil {
					err = f()
				}
			}
		}
		step(keyVersion, func() error { return enc.EncodeInt(1) })
		step(keyID, func() error { return enc.EncodeBytes(u[:]) })
		step(keyName, func() error { return enc.EncodeString(e.Name) })
		step(keyArgs, func() error { return enc.EncodeBytes(e.Args) })
		step(keyContentType, func() error { return enc.EncodeInt(1) })
		step(keySentAt, func() error { return enc.EncodeInt(e.SentAt.UnixMilli()) })
		step(keyOrigin, func() error { return enc.EncodeString(e.Origin) })
		step(keyReplyTo, func() error { return enc.EncodeBool(true) })
		lib.PutEncoder(enc)
		return w.Bytes(), err
	}
	data, err := write()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode by hand", func(b *testing.B) {
		b.ReportAllocs()
		var w writer
		for b.Loop() {
			w.begin(e)
			w.envelope(e)
			if len(w.b) != len(data) {
				b.Fatalf("%d bytes, the library writes %d", len(w.b), len(data))
			}
		}
	})
	b.Run("decode by hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var got task.Envelope
			r := rawmsgpack.NewReader(data)
			readEnvelope(&r, &got, "")
			if r.Err() != nil {
				b.Fatal(r.Err())
			}
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := write(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var got task.Envelope
			dec := lib.GetDecoder()
			dec.Reset(bytes.NewReader(data))
			n, err := dec.DecodeMapLen()
			for ; n > 0 && err == nil; n-- {
				var key int
				if key, err = dec.DecodeInt(); err != nil {
					break
				}
				var ms int64
				var id []byte
				switch key {
				case keyVersion:
					got.Version, err = dec.DecodeInt()
				case keyID:
					id, err = dec.DecodeBytes()
					got.ID = task.ID(formatUUID(id))
				case keyName:
					got.Name, err = dec.DecodeString()
				case keyArgs:
					got.Args, err = dec.DecodeBytes()
				case keyContentType:
					_, err = dec.DecodeInt()
				case keySentAt:
					ms, err = dec.DecodeInt64()
					got.SentAt = time.UnixMilli(ms)
				case keyOrigin:
					got.Origin, err = dec.DecodeString()
				default:
					err = dec.Skip()
				}
			}
			if err != nil {
				b.Fatal(err)
			}
			lib.PutDecoder(dec)
		}
	})
}
