package redisbroker

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
)

const (
	// version is the first byte of a message stored by this adapter. A JSON text begins with '{'.
	version = 1
	// header is the length of the fixed part: version, priority, expiry, lengths of the content type
	// and of the extras.
	header = 1 + 4 + 8 + 1 + 4

	defaultPriority = 100
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

// encode returns the stored form of m, without its ID and Generation, which are in its key. Returns
// ErrMalformed if messagecode.Check refuses m, or for a text that is not UTF-8. Returns it too for
// a header of another type. Returns ErrTooLarge if the body is too large, or headers and properties
// together are larger than 64 KiB.
func (b *Broker) encode(m *broker.Message) ([]byte, error) {
	if err := messagecode.Check(m, b.cfg.MaxBody); err != nil {
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
	before := len(v)
	v, err := messagecode.AppendExtras(v, m)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(v[header-4:], uint32(len(v)-before))
	return append(v, m.Body...), nil
}

// decode fills m with the message that is stored as value under key. The key gives ID and
// Generation. types holds the content type of the previous message, to share its memory, and is
// updated.
//
// It never fails: a value that this adapter has not written becomes the body, so that a consumer
// receives the message and can dead-letter it. Its priority is the default, and its content type is
// JSON if it begins with "{", else empty.
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
		if !messagecode.DecodeExtras([]byte(rest[typeLen:len(rest)-len(body)]), m) {
			return false
		}
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
