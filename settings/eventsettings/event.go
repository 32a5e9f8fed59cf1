package eventsettings

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/settings"
)

// Fields of the event. They are part of the wire format. A bus cuts long texts, so the data are a
// list of texts.
const (
	fieldToken    = "token"
	fieldKey      = "key"
	fieldRevision = "revision" // a decimal text, since numbers are floats
	fieldData     = "data"     // a list of texts in base64; missing: the value was deleted
	fieldWriter   = "writer"   // the node that made the change; NodeID may be one that renews it
)

// chunk is the size of a text of fieldData, in bytes.
const chunk = 3000

// entry is the newest known state of a value.
type entry struct {
	revision uint64
	writer   string
	data     []byte
	deleted  bool
	sent     time.Time // of the newest event with this state
	again    bool      // deleted, and an event of an older state came after that
}

// over reports whether e replaces old, the present entry of its key or nil. The higher revision
// wins, and for equal revisions the greater name of the writer.
func (e *entry) over(old *entry) bool {
	return old == nil || e.revision > old.revision || e.revision == old.revision && e.writer > old.writer
}

// same reports whether e and o are the same change of a value: o is not nil and has the same
// revision and writer.
func (e *entry) same(o *entry) bool {
	return o != nil && e.revision == o.revision && e.writer == o.writer
}

// event returns the event from node that carries e as the change of key, and token. With an empty
// key the event carries only the token.
func (e *entry) event(node, key, token string) events.Event {
	out := events.Event{Type: eventType, NodeID: node, Time: time.Now(), Fields: map[string]any{fieldToken: token}}
	if key == "" {
		return out
	}
	out.Fields[fieldKey], out.Fields[fieldWriter] = key, e.writer
	out.Fields[fieldRevision] = strconv.FormatUint(e.revision, 10)
	if e.deleted {
		return out
	}
	text := base64.StdEncoding.EncodeToString(e.data)
	list := []any{}
	for len(text) > chunk {
		list = append(list, text[:chunk])
		text = text[chunk:]
	}
	out.Fields[fieldData] = append(list, text)
	return out
}

// read returns the key of the change that an event carries, and the change. ok is false if the
// event carries no change, or a malformed one.
func read(ev *events.Event) (key string, e *entry, ok bool) {
	key, _ = ev.Fields[fieldKey].(string)
	number, _ := ev.Fields[fieldRevision].(string)
	revision, err := strconv.ParseUint(number, 10, 64)
	if settings.CheckKey(key) != nil || err != nil || revision == 0 {
		return "", nil, false
	}
	e = &entry{revision: revision, sent: ev.Time}
	e.writer, _ = ev.Fields[fieldWriter].(string)
	data, has := ev.Fields[fieldData]
	if !has {
		e.deleted = true
		return key, e, true
	}
	list, ok := data.([]any)
	var text strings.Builder
	for _, part := range list {
		s, is := part.(string)
		ok = ok && is
		text.WriteString(s)
	}
	e.data, err = base64.StdEncoding.DecodeString(text.String())
	return key, e, ok && err == nil && len(e.data) <= settings.MaxData
}
