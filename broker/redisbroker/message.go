package redisbroker

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
)

const (
	// version is the first byte of a message stored by this adapter. A JSON text begins with '{'.
	version = 1
	// header is the length of the fixed part: version, priority, expiry, lengths of the content type
	// and of the extras.
	header = 1 + 4 + 8 + 1 + 4

	defaultPriority = 100
	maxHeaders      = 64 << 10
	maxID           = 255
	contentJSON     = "application/json"
)

// keyOf returns the key of a message in its queue: its id, and after a space its Generation if that
// is not 0. An id that begins with '{' or '~' gets a '~' before it, so that no key begins like a
// JSON text.
func keyOf(id string, generation int) string {
	if strings.HasPrefix(id, "{") || strings.HasPrefix(id, "~") {
		id = "~" + id
	}
	if generation == 0 {
		return id
	}
	return id + " " + strconv.Itoa(generation)
}

// parseKey returns the id and the Generation in a key. It accepts any text: without a positive
// number after a space the Generation is 0.
func parseKey(key string) (id string, generation int) {
	id, gen, _ := strings.Cut(key, " ")
	if n, err := strconv.ParseInt(gen, 10, 32); err == nil && n > 0 {
		generation = int(n)
	}
	return strings.TrimPrefix(id, "~"), generation
}

// validID reports whether a message may have the id: 1 to maxID visible ASCII characters. The ids
// of tasks are shorter.
func validID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// check returns an error if m cannot be stored. Returns ErrTooLarge if the body is larger than
// MaxBody. Returns ErrMalformed for a nil m, an id that is not valid, or a Generation or Priority
// beyond 32 bits. It does so too for a content type of more than 255 bytes.
func (b *Broker) check(m *broker.Message) error {
	switch {
	case m == nil:
		return fmt.Errorf("%w: no message", broker.ErrMalformed)
	case len(m.Body) > broker.BodyLimit(b.cfg.MaxBody, m.Generation):
		return fmt.Errorf("%w: body of %d bytes, the limit is %d", broker.ErrTooLarge, len(m.Body), b.cfg.MaxBody)
	case !validID(m.ID):
		return fmt.Errorf("%w: the id is not 1 to %d visible ASCII characters", broker.ErrMalformed, maxID)
	case m.Generation < 0 || m.Generation >= math.MaxInt32:
		return fmt.Errorf("%w: generation %d", broker.ErrMalformed, m.Generation)
	case m.Priority < math.MinInt32 || m.Priority > math.MaxInt32:
		return fmt.Errorf("%w: priority %d", broker.ErrMalformed, m.Priority)
	case len(m.ContentType) > math.MaxUint8:
		return fmt.Errorf("%w: content type of %d bytes", broker.ErrMalformed, len(m.ContentType))
	}
	return nil
}

// encode returns the stored form of m, without its ID and Generation, which are in its key. Returns
// ErrMalformed if check refuses m, or for a text that is not UTF-8 or a header of another type.
// Returns ErrTooLarge if the body is too large, or headers and properties together are larger than
// maxHeaders.
func (b *Broker) encode(m *broker.Message) ([]byte, error) {
	if err := b.check(m); err != nil {
		return nil, err
	}
	v := make([]byte, 0, header+len(m.ContentType)+len(m.Body))
	v = append(v, version)
	v = binary.BigEndian.AppendUint32(v, uint32(int32(m.Priority)))
	var expires int64
	if !m.Expires.IsZero() {
		expires = m.Expires.UnixMilli()
	}
	v = binary.BigEndian.AppendUint64(v, uint64(expires))
	v = append(v, byte(len(m.ContentType)))
	v = binary.BigEndian.AppendUint32(v, 0)
	v = append(v, m.ContentType...)
	if len(m.Headers)+len(m.Properties) > 0 {
		before := len(v)
		var err error
		if v, err = appendExtras(v, m); err != nil {
			return nil, err
		}
		size := len(v) - before
		if size > maxHeaders {
			return nil, fmt.Errorf("%w: headers of %d bytes, the limit is %d", broker.ErrTooLarge, size, maxHeaders)
		}
		binary.BigEndian.PutUint32(v[header-4:], uint32(size))
	}
	return append(v, m.Body...), nil
}

// appendExtras appends the headers and properties of m to v, as two msgpack maps. Returns
// ErrMalformed for a text that is not UTF-8 or a header of another type.
func appendExtras(v []byte, m *broker.Message) ([]byte, error) {
	v = rawmsgpack.AppendMapLen(v, len(m.Headers))
	for _, k := range sortedKeys(m.Headers) {
		if !utf8.ValidString(k) {
			return nil, fmt.Errorf("%w: the name of header %.40q is not UTF-8", broker.ErrMalformed, k)
		}
		v = rawmsgpack.AppendText(v, k)
		switch h := m.Headers[k].(type) {
		case string:
			if !utf8.ValidString(h) {
				return nil, fmt.Errorf("%w: header %.40q is a text that is not UTF-8", broker.ErrMalformed, k)
			}
			v = rawmsgpack.AppendText(v, h)
		case []byte:
			v = rawmsgpack.AppendBytes(v, h)
		case bool:
			v = rawmsgpack.AppendBool(v, h)
		case int64:
			v = rawmsgpack.AppendInt(v, h)
		case float64:
			v = append(v, 0xcb)
			v = binary.BigEndian.AppendUint64(v, math.Float64bits(h))
		default:
			return nil, fmt.Errorf("%w: header %.40q has the type %T, which cannot be sent", broker.ErrMalformed, k, h)
		}
	}
	v = rawmsgpack.AppendMapLen(v, len(m.Properties))
	for _, k := range sortedKeys(m.Properties) {
		if !utf8.ValidString(k) || !utf8.ValidString(m.Properties[k]) {
			return nil, fmt.Errorf("%w: property %.40q is not UTF-8", broker.ErrMalformed, k)
		}
		v = rawmsgpack.AppendText(v, k)
		v = rawmsgpack.AppendText(v, m.Properties[k])
	}
	return v, nil
}

// sortedKeys returns the keys of m in ascending order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// decode fills m with the message that is stored as value under key. types holds the content type
// of the previous message, to share its memory, and is updated.
//
// It never fails: a value that this adapter has not written becomes the body, so that a consumer
// receives the message and can dead-letter it.
func decode(m *broker.Message, key, value string, types *string) {
	m.ID, m.Generation = parseKey(key)
	m.Priority = defaultPriority
	if len(value) >= header && value[0] == version && decodeOwn(m, value, types) {
		return
	}
	if strings.HasPrefix(value, "{") {
		m.ContentType = contentJSON
	}
	m.Body = []byte(value)
}

// decodeOwn fills m, except its ID and Generation, with a message that this adapter has stored.
// value has at least the length header. It returns false for a damaged value, and m is unchanged
// then. types holds the last content type and is updated.
func decodeOwn(m *broker.Message, value string, types *string) bool {
	fixed := []byte(value[:header])
	typeLen := int(fixed[header-5])
	extras := int64(binary.BigEndian.Uint32(fixed[header-4:]))
	rest := value[header:]
	if int64(typeLen)+extras > int64(len(rest)) {
		return false
	}
	body := rest[typeLen+int(extras):]
	if extras > 0 {
		headers, properties, ok := decodeExtras([]byte(rest[typeLen : len(rest)-len(body)]))
		if !ok {
			return false
		}
		m.Headers, m.Properties = headers, properties
	}
	m.Priority = int(int32(binary.BigEndian.Uint32(fixed[1:])))
	if expires := int64(binary.BigEndian.Uint64(fixed[5 : header-5])); expires != 0 {
		m.Expires = time.UnixMilli(expires)
	}
	if *types != rest[:typeLen] {
		*types = strings.Clone(rest[:typeLen]) // a substring would keep the whole value in memory
	}
	m.ContentType = *types
	m.Body = []byte(body)
	return true
}

// decodeExtras returns the headers and properties in data, two msgpack maps. ok is false if data is
// damaged.
func decodeExtras(data []byte) (headers map[string]any, properties map[string]string, ok bool) {
	r := rawmsgpack.NewReader(data)
	if n := r.MapLen(); n > 0 && r.Err() == nil {
		headers = make(map[string]any, min(n, len(data)))
		for range n {
			k := string(r.Text())
			v, ok := decodeHeader(&r)
			if !ok || r.Err() != nil {
				return nil, nil, false
			}
			headers[k] = v
		}
	}
	if n := r.MapLen(); n > 0 && r.Err() == nil {
		properties = make(map[string]string, min(n, len(data)))
		for range n {
			k := string(r.Text())
			v := string(r.Text())
			if r.Err() != nil {
				return nil, nil, false
			}
			properties[k] = v
		}
	}
	r.Done()
	return headers, properties, r.Err() == nil
}

// decodeHeader reads the value of one header: a text, bytes, a boolean, a float or an integer. It
// returns false for a damaged float. For a value of another type it sets the error of r.
func decodeHeader(r *rawmsgpack.Reader) (any, bool) {
	switch c := r.Peek(); {
	case r.IsText():
		return string(r.Text()), true
	case r.IsBytes():
		return slices.Clone(r.Bytes()), true
	case c == 0xc2 || c == 0xc3:
		return r.Bool(), true
	case c == 0xcb:
		v := r.Skip()
		if len(v) != 9 {
			return nil, false
		}
		return math.Float64frombits(binary.BigEndian.Uint64(v[1:])), true
	default:
		return r.Int(), true
	}
}
