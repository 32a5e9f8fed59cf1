package msgpack

import (
	"fmt"
	"math"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Decode implements [serializer.Format]. It reads messages whose content type is
// [serializer.ContentCompact]; for others it returns serializer.ErrNotMine. The envelope's Args
// share the message's body.
//
//   - A message without an id in its body gets the broker's message id.
//   - Negative counts and durations are refused. Other values out of range are clamped.
//   - Envelope.Unknown holds unknown pairs as a msgpack map. Those of the base and links are
//     dropped.
func (Compact) Decode(m *broker.Message) (*task.Envelope, error) {
	if m.ContentType != serializer.ContentCompact && serializer.MediaType(m.ContentType) != serializer.ContentCompact {
		return nil, serializer.ErrNotMine
	}
	if err := serializer.CheckEncoding(m); err != nil {
		return nil, err
	}
	e := &task.Envelope{}
	// A Reader refuses lengths that the body cannot hold, and links are flat: no check comes first.
	r := rawmsgpack.NewReader(m.Body)
	readEnvelope(&r, e, m.ID)
	r.Done()
	err := r.Err()
	if err == nil {
		if e.ID == "" {
			e.ID = task.ID(m.ID)
		}
		if e.Root == e.ID {
			e.Root = ""
		}
		err = serializer.CheckEnvelope(e)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
	}
	return e, nil
}

// readEnvelope reads the map of an envelope into e. messageID is the broker's id of the message,
// which usually is the task's id. It leaves an error in r.
func readEnvelope(r *rawmsgpack.Reader, e *task.Envelope, messageID string) {
	var (
		seen        rawmsgpack.Keys
		unknown     []byte
		unknowns    int
		replyOrigin bool
	)
	e.Version = task.EnvelopeVersion
	for n := r.MapLen(); n > 0 && r.Err() == nil; n-- {
		switch key := r.Key(&seen); key {
		case keyVersion:
			if e.Version = serializer.Count(r.Int()); e.Version == 0 {
				e.Version = -1 // version 0 was never written
			}
		case keyID:
			e.ID = readID(r, messageID)
		case keyName:
			e.Name = string(r.Text())
		case keyArgs:
			e.Args = r.Bytes()
		case keyContentType:
			e.ContentType = readContentType(r)
		case keySentAt:
			e.SentAt = serializer.FromMilli(r.Int())
		case keyOrigin:
			e.Origin = string(r.Text())
		case keyReplyTo:
			if r.IsText() {
				e.ReplyTo = string(r.Text())
			} else {
				replyOrigin = r.Bool()
			}
		case keyRoot:
			e.Root = readID(r, "")
		case keyParent:
			e.Parent = readID(r, "")
		case keyGroup:
			e.Group = readID(r, "")
		case keyGroupIndex:
			e.GroupIndex = readSize(r)
		case keyGroupSize:
			e.GroupSize = readSize(r)
		case keyCopy:
			e.Copy = string(r.Text())
		case keyBurst:
			e.Burst = string(r.Text())
		case keyRetries:
			e.Retries = serializer.Count(r.Int())
		case keyCrashes:
			e.Crashes = serializer.Count(r.Int())
		case keyParked:
			e.Parked = serializer.Count(r.Int())
		case keyLife:
			e.Life = serializer.Count(r.Int())
		case keyCorrelation:
			e.Correlation = string(r.Text())
		case keyHeaders:
			e.Headers = readHeaders(r)
		case keyLinks:
			readLinks(r, e)
		case keyBase:
			e.Base = readBase(r)
		default:
			if !readMetadata(r, key, &e.Meta) {
				raw := r.Skip()
				unknown = append(append(unknown, byte(key)), raw...)
				unknowns++
			}
		}
	}
	if replyOrigin {
		e.ReplyTo = e.Origin
	}
	if unknowns > 0 && r.Err() == nil {
		e.Unknown = append(rawmsgpack.AppendMapLen(nil, unknowns), unknown...)
	}
}

// readSize reads a group index or a group size. A value out of range stays out of range and is
// refused, because another index is another task.
func readSize(r *rawmsgpack.Reader) int { return int(min(max(r.Int(), -1), math.MaxInt32+1)) }

// readID reads an id: a UUID as 16 bytes, or a text. If it is the id in hint, readID returns hint,
// which saves an allocation. After an error, which stays in r, the result has no meaning.
func readID(r *rawmsgpack.Reader, hint string) task.ID {
	if !r.IsBytes() {
		b := r.Text()
		if string(b) == hint {
			return task.ID(hint)
		}
		return task.ID(b)
	}
	b := r.Bytes()
	if len(b) != 16 {
		r.Fail(fmt.Errorf("an id of %d bytes", len(b)))
		return ""
	}
	if u, ok := parseUUID(hint); ok && string(u[:]) == string(b) {
		return task.ID(hint)
	}
	return task.ID(formatUUID(b))
}

// readContentType reads a content type: a text, or an index in contentCodes. For an unknown index
// it leaves an error in r.
func readContentType(r *rawmsgpack.Reader) string {
	known := contentCodes()
	if r.IsText() {
		b := r.Text()
		for _, s := range known {
			if s == string(b) {
				return s
			}
		}
		return string(b)
	}
	code := r.Int()
	if code < 0 || code >= int64(len(known)) {
		r.Fail(fmt.Errorf("content type code %d is unknown", code))
		return ""
	}
	return known[code]
}

// readHeaders reads a map of texts. It leaves an error in r, and returns nil, for too many headers
// or a key that occurs twice.
func readHeaders(r *rawmsgpack.Reader) map[string]string {
	n := r.MapLen()
	if n > serializer.MaxHeaders {
		r.Fail(fmt.Errorf("%d headers, at most %d", n, serializer.MaxHeaders))
		return nil
	}
	h := make(map[string]string, n)
	for range n {
		k := string(r.Text())
		v := string(r.Text())
		if r.Err() != nil {
			return nil
		}
		if _, twice := h[k]; twice {
			r.Fail(fmt.Errorf("header %q occurs twice", utf.Cut(k, 64)))
			return nil
		}
		h[k] = v
	}
	return h
}

// readBase reads a map of metadata. It skips other keys. It leaves an error in r.
func readBase(r *rawmsgpack.Reader) *task.Metadata {
	m := &task.Metadata{}
	var seen rawmsgpack.Keys
	for n := r.MapLen(); n > 0 && r.Err() == nil; n-- {
		if key := r.Key(&seen); !readMetadata(r, key, m) {
			r.Skip()
		}
	}
	return m
}

// readMetadata reads the value of a metadata key into m and returns true. If key is not a metadata
// key it reads nothing and returns false.
func readMetadata(r *rawmsgpack.Reader, key int, m *task.Metadata) bool {
	switch key {
	case keyQueue:
		m.Queue = task.Set(string(r.Text()))
	case keyMaxRetries:
		m.MaxRetries = task.Set(int(min(max(r.Int(), math.MinInt32), math.MaxInt32)))
	case keyRetryDelay:
		m.RetryDelay = readDuration(r)
	case keyRateLimit:
		m.RateLimit = task.Set(string(r.Text()))
	case keyTimeLimit:
		m.TimeLimit = readDuration(r)
	case keySoftTimeLimit:
		m.SoftTimeLimit = readDuration(r)
	case keyIgnoreResult:
		m.IgnoreResult = task.Set(r.Bool())
	case keyIdempotent:
		m.Idempotent = task.Set(r.Bool())
	case keySerializer:
		m.Serializer = task.Set(readContentType(r))
	case keyResultStore:
		m.ResultStore = task.Set(string(r.Text()))
	case keyResultTTL:
		m.ResultTTL = readDuration(r)
	case keyPriority:
		m.Priority = task.Set(serializer.Priority(r.Int()))
	case keyNotBefore:
		m.NotBefore = readTime(r)
	case keyExpires:
		m.Expires = readTime(r)
	case keyCompression:
		m.Compression = task.Set(string(r.Text()))
	case keyRetry:
		m.Retry = task.Set(string(r.Text()))
	case keyDeadLetter:
		m.DeadLetter = task.Set(r.Bool())
	case keyFairnessKey:
		m.FairnessKey = task.Set(string(r.Text()))
	case keyFairnessWeight:
		m.FairnessWeight = task.Set(serializer.Weight(r.Int()))
	default:
		return false
	}
	return true
}

// readDuration reads milliseconds and returns the duration as serializer.FromMillis does.
func readDuration(r *rawmsgpack.Reader) task.Opt[time.Duration] {
	return task.Set(serializer.FromMillis(r.Int()))
}

// readTime reads milliseconds since 1970, or nil for the zero time.
func readTime(r *rawmsgpack.Reader) task.Opt[time.Time] {
	if r.Nil() {
		return task.Set(time.Time{})
	}
	return task.Set(serializer.FromMilli(r.Int()))
}
