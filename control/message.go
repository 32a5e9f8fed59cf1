package control

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
)

// Types of the events with commands and replies. They are part of the wire format. Such an event
// has these fields:
//
//	head  text: a JSON object, see type head
//	data  list of texts, to be joined: the JSON of a Command, or a part of the JSON of a Reply
//	key   text: id of the key; missing without a signature
//	mac   text: the signature, 64 hexadecimal digits
const (
	CommandEvent = "control-command"
	ReplyEvent   = "control-reply"
)

// Limits of a message, in bytes. An event can carry 16 KiB of fields, and texts of 4 KiB.
const (
	maxHead  = 2 << 10
	maxData  = 8 << 10
	maxChunk = 4000
)

// version is the version of messages that this package writes and reads.
const version = 1

// head describes a message.
type head struct {
	Version int    `json:"v"`
	ID      string `json:"id"`           // unique random id of the command; its replies have the same
	At      int64  `json:"at"`           // milliseconds since 1970 on the sender's clock
	From    string `json:"from"`         // node id of the sender
	Part    int    `json:"part"`         // number of this part of a reply, from 0
	Parts   int    `json:"of,omitempty"` // number of parts of a reply
	// of a command: its sender listens to the bus for replies too
	Replies bool `json:"replies,omitempty"`
}

func (h *head) time() time.Time { return time.UnixMilli(h.At) }

// message is a command or a part of a reply.
type message struct {
	typ  string // type of the event
	head string
	data string
	key  string // "": not signed
	mac  []byte
}

var errMalformed = errors.New("control: malformed message")

// newMessage returns an unsigned message. Returns [ErrCommand] if the head or data is too large.
func newMessage(typ string, h head, data string) (*message, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if len(text) > maxHead || len(data) > maxData {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrCommand, len(data), maxData)
	}
	return &message{typ: typ, head: string(text), data: data}, nil
}

// event returns the message as an event of now with the sender's node id.
func (m *message) event(from string) events.Event {
	fields := map[string]any{"head": m.head, "data": chunks(m.data)}
	if m.key != "" {
		fields["key"], fields["mac"] = m.key, hex.EncodeToString(m.mac)
	}
	return events.Event{Type: m.typ, NodeID: from, Time: time.Now(), Fields: fields}
}

// chunks splits a text into pieces that an event does not truncate, of at most maxChunk bytes. It
// never splits a UTF-8 character. An empty text has no pieces.
func chunks(s string) []any {
	var list []any
	for len(s) > 0 {
		end := min(len(s), maxChunk)
		for end < len(s) && !utf8.RuneStart(s[end]) {
			end--
		}
		list = append(list, s[:end])
		s = s[end:]
	}
	return list
}

// readMessage returns the message in an event. It does not check the signature. Returns
// errMalformed if a field is missing, too long or of another type. It allocates at most the size of
// the event.
func readMessage(e *events.Event) (*message, error) {
	m := &message{typ: e.Type}
	var ok bool
	if m.head, ok = e.Fields["head"].(string); !ok || len(m.head) > maxHead {
		return nil, errMalformed
	}
	list, _ := e.Fields["data"].([]any)
	for _, x := range list {
		s, ok := x.(string)
		if !ok || len(m.data)+len(s) > maxData {
			return nil, errMalformed
		}
		m.data += s
	}
	if _, signed := e.Fields["key"]; !signed {
		return m, nil
	}
	m.key, _ = e.Fields["key"].(string)
	text, _ := e.Fields["mac"].(string)
	mac, err := hex.DecodeString(text)
	if m.key == "" || len(m.key) > maxKeyID || err != nil || len(mac) != macSize {
		return nil, errMalformed
	}
	m.mac = mac
	return m, nil
}

// readHead decodes and checks the head of a message. Returns errMalformed if it is not JSON, has
// another version, or its ids are missing or invalid.
func (m *message) readHead() (head, error) {
	var h head
	if err := json.Unmarshal([]byte(m.head), &h); err != nil {
		return head{}, errMalformed
	}
	if h.Version != version || h.ID == "" || len(h.ID) > maxID || task.CheckName(h.From) != nil {
		return head{}, errMalformed
	}
	return h, nil
}

// maxID is the maximum length of a command's id.
const maxID = 64

// readCommand decodes and checks the command of a message. Returns errMalformed if the data are not
// JSON, and the error of [Command.Check] for a bad command.
func (m *message) readCommand() (Command, error) {
	var c Command
	if err := json.Unmarshal([]byte(m.data), &c); err != nil {
		return Command{}, errMalformed
	}
	if err := c.Check(); err != nil {
		return Command{}, err
	}
	return c, nil
}
