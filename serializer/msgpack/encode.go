package msgpack

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Compact is the default [serializer.Format]. It writes a task as one msgpack map with small
// integers as keys, and omits fields at their defaults. Its encoder and decoder are written by
// hand, because every task passes through them. The zero value is ready to use.
type Compact struct{}

// ContentType returns [serializer.ContentCompact].
func (Compact) ContentType() string { return serializer.ContentCompact }

// contentCodes returns the content types that are written as one byte, their index. They are part
// of the wire format.
func contentCodes() [4]string {
	return [...]string{"", serializer.ContentMsgpack, serializer.ContentJSON, serializer.ContentRaw}
}

// Encode implements [serializer.Format]: it returns a message whose body is e as a msgpack map.
// Returns [serializer.ErrValue] for envelopes that Decode would refuse.
func (Compact) Encode(e *task.Envelope) (*broker.Message, error) {
	if err := serializer.CheckEnvelope(e); err != nil {
		return nil, fmt.Errorf("%w: %w", serializer.ErrValue, err)
	}
	w := writers.Get().(*writer)
	w.begin(e)
	w.envelope(e)
	body := w.b
	if w.n < 16 {
		body[0] = 0x80 | byte(w.n)
	} else {
		body = slices.Replace(body, 0, 1, rawmsgpack.AppendMapLen(nil, w.n)...)
	}
	w.b = nil
	if cap(body) <= maxKept {
		w.b, body = body, bytes.Clone(body) // a waiting message takes no more memory than its bytes
	}
	writers.Put(w)
	return serializer.NewMessage(e, serializer.ContentCompact, body), nil
}

var writers = sync.Pool{New: func() any { return new(writer) }}

// writer writes the pairs of a map and counts them. It is used again, with its buffer.
type writer struct {
	b []byte
	n int
}

// begin empties the buffer, and leaves one byte for the header of a map with fewer than 16 pairs.
func (w *writer) begin(e *task.Envelope) {
	const others = 256 // bytes of the fields beside the arguments, usually
	w.b, w.n = append(slices.Grow(w.b[:0], len(e.Args)+others), 0), 0
}

// key writes the key of a pair and counts the pair. The caller writes the value.
func (w *writer) key(k byte) {
	w.b = append(w.b, k)
	w.n++
}

// text writes a pair with a text. It writes nothing for "".
func (w *writer) text(k byte, s string) {
	if s != "" {
		w.key(k)
		w.b = rawmsgpack.AppendText(w.b, s)
	}
}

// count writes a pair with a number. It writes nothing for 0.
func (w *writer) count(k byte, v int) {
	if v != 0 {
		w.key(k)
		w.b = rawmsgpack.AppendInt(w.b, int64(v))
	}
}

// id writes a pair with an id, and nothing for "". A UUID is 16 bytes. Other ids, and UUIDs in
// upper case, are text, so that they are read back unchanged.
func (w *writer) id(k byte, id task.ID) {
	if id == "" {
		return
	}
	w.key(k)
	if u, ok := parseUUID(string(id)); ok {
		w.b = append(w.b, 0xc4, 16)
		w.b = append(w.b, u[:]...)
		return
	}
	w.b = rawmsgpack.AppendText(w.b, string(id))
}

// contentType writes a pair with a content type: its index in contentCodes, or a text.
func (w *writer) contentType(k byte, s string) {
	w.key(k)
	for code, known := range contentCodes() {
		if s == known {
			w.b = append(w.b, byte(code))
			return
		}
	}
	w.b = rawmsgpack.AppendText(w.b, s)
}

// args writes a pair with the arguments unless they are nil, and one with their content type unless
// it is "".
func (w *writer) args(contentType string, args []byte) {
	if args != nil {
		w.key(keyArgs)
		w.b = rawmsgpack.AppendBytes(w.b, args)
	}
	if contentType != "" {
		w.contentType(keyContentType, contentType)
	}
}

// envelope writes all pairs of an envelope, without those of fields at their defaults.
func (w *writer) envelope(e *task.Envelope) {
	w.key(keyVersion)
	version := e.Version
	if version == 0 {
		version = task.EnvelopeVersion
	}
	w.b = rawmsgpack.AppendInt(w.b, int64(version))
	w.id(keyID, e.ID)
	w.text(keyName, e.Name)
	w.args(e.ContentType, e.Args)
	if !e.SentAt.IsZero() {
		w.key(keySentAt)
		w.b = rawmsgpack.AppendInt(w.b, serializer.Milli(e.SentAt))
	}
	w.text(keyOrigin, e.Origin)
	if e.ReplyTo != "" && e.ReplyTo == e.Origin {
		w.key(keyReplyTo)
		w.b = rawmsgpack.AppendBool(w.b, true)
	} else {
		w.text(keyReplyTo, e.ReplyTo)
	}
	if e.Root != e.ID {
		w.id(keyRoot, e.Root)
	}
	w.id(keyParent, e.Parent)
	w.id(keyGroup, e.Group)
	w.count(keyGroupIndex, e.GroupIndex)
	w.count(keyGroupSize, e.GroupSize)
	w.text(keyCopy, e.Copy)
	w.count(keyRetries, e.Retries)
	w.count(keyCrashes, e.Crashes)
	w.count(keyParked, e.Parked)
	w.count(keyLife, e.Life)
	w.text(keyBurst, e.Burst)
	w.text(keyCorrelation, e.Correlation)
	w.headers(e.Headers)
	w.links(e)
	if e.Base != nil {
		w.key(keyBase)
		base := writer{b: append(w.b, 0xde, 0, 0)}
		base.metadata(e.Base)
		w.b = base.shut(len(w.b))
	}
	w.metadata(&e.Meta)
	w.unknown(e.Unknown)
}

// headers writes a pair with a map of texts, sorted by key. It writes nothing for an empty map.
func (w *writer) headers(h map[string]string) {
	if len(h) == 0 {
		return
	}
	w.key(keyHeaders)
	w.b = rawmsgpack.AppendMapLen(w.b, len(h))
	if len(h) == 1 {
		for k, v := range h {
			w.b = rawmsgpack.AppendText(rawmsgpack.AppendText(w.b, k), v)
		}
		return
	}
	names := make([]string, 0, len(h))
	for k := range h {
		names = append(names, k)
	}
	slices.Sort(names) // so that equal envelopes give equal bytes
	for _, k := range names {
		w.b = rawmsgpack.AppendText(rawmsgpack.AppendText(w.b, k), h[k])
	}
}

// metadata writes a pair for each set field of m.
func (w *writer) metadata(m *task.Metadata) {
	if m.IsZero() {
		return
	}
	w.optText(keyQueue, m.Queue)
	w.optInt(keyMaxRetries, m.MaxRetries)
	w.optDuration(keyRetryDelay, m.RetryDelay)
	w.optText(keyRateLimit, m.RateLimit)
	w.optDuration(keyTimeLimit, m.TimeLimit)
	w.optDuration(keySoftTimeLimit, m.SoftTimeLimit)
	w.optBool(keyIgnoreResult, m.IgnoreResult)
	w.optBool(keyIdempotent, m.Idempotent)
	if s, ok := m.Serializer.Get(); ok {
		w.contentType(keySerializer, s)
	}
	w.optText(keyResultStore, m.ResultStore)
	w.optDuration(keyResultTTL, m.ResultTTL)
	w.optInt(keyPriority, m.Priority)
	w.optTime(keyNotBefore, m.NotBefore)
	w.optTime(keyExpires, m.Expires)
	w.optText(keyCompression, m.Compression)
	w.optText(keyRetry, m.Retry)
	w.optBool(keyDeadLetter, m.DeadLetter)
	w.optText(keyFairnessKey, m.FairnessKey)
	w.optInt(keyFairnessWeight, m.FairnessWeight)
}

// optText writes a pair with the text of o. It writes nothing if o is unset.
func (w *writer) optText(k byte, o task.Opt[string]) {
	if s, ok := o.Get(); ok {
		w.key(k)
		w.b = rawmsgpack.AppendText(w.b, s)
	}
}

// optInt writes a pair with the number of o. It writes nothing if o is unset.
func (w *writer) optInt(k byte, o task.Opt[int]) {
	if v, ok := o.Get(); ok {
		w.key(k)
		w.b = rawmsgpack.AppendInt(w.b, int64(v))
	}
}

// optBool writes a pair with the boolean of o. It writes nothing if o is unset.
func (w *writer) optBool(k byte, o task.Opt[bool]) {
	if v, ok := o.Get(); ok {
		w.key(k)
		w.b = rawmsgpack.AppendBool(w.b, v)
	}
}

// optDuration writes a pair with o in milliseconds, rounded up. It writes nothing if o is unset.
func (w *writer) optDuration(k byte, o task.Opt[time.Duration]) {
	if d, ok := o.Get(); ok {
		w.key(k)
		w.b = rawmsgpack.AppendInt(w.b, serializer.Millis(d))
	}
}

// optTime writes a pair with o in milliseconds since 1970, or nil for the zero time. It writes
// nothing if o is unset.
func (w *writer) optTime(k byte, o task.Opt[time.Time]) {
	t, ok := o.Get()
	if !ok {
		return
	}
	w.key(k)
	if t.IsZero() {
		w.b = rawmsgpack.AppendNil(w.b)
		return
	}
	w.b = rawmsgpack.AppendInt(w.b, serializer.Milli(t))
}

// unknown writes the unknown pairs that Decode kept. It drops u if it is not a msgpack map, because
// another Format kept it.
func (w *writer) unknown(u []byte) {
	if len(u) == 0 {
		return
	}
	r := rawmsgpack.NewReader(u)
	n := r.MapLen()
	if r.Err() != nil {
		return
	}
	w.b = append(w.b, u[r.Pos():]...)
	w.n += n
}

// parseUUID returns the bytes of a UUID. ok is false unless s is its canonical text in lower case.
func parseUUID(s string) (u [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	var bad byte
	for i, at := range [...]byte{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		high, low := nibbles[s[at]], nibbles[s[at+1]]
		bad |= high | low
		u[i] = high<<4 | low
	}
	return u, bad <= 15
}

// nibbles maps each byte to its value as a lower-case hex digit; other bytes to 255. A table is
// faster than comparisons, because processors cannot predict branches on random digits.
const nibbles = "" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\x0a\x0b\x0c\x0d\x0e\x0f\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// formatUUID returns the canonical text, in lower case, of a UUID of 16 bytes.
func formatUUID(u []byte) string {
	var x [36]byte
	hex.Encode(x[:8], u[:4])
	x[8] = '-'
	hex.Encode(x[9:13], u[4:6])
	x[13] = '-'
	hex.Encode(x[14:18], u[6:8])
	x[18] = '-'
	hex.Encode(x[19:23], u[8:10])
	x[23] = '-'
	hex.Encode(x[24:], u[10:16])
	return string(x[:])
}
