package amqpbroker

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// note is one entry of a stream of notes, in JSON. What a reader does not know it ignores.
type note struct {
	Kind     string    `json:"k"`
	At       int64     `json:"t"`           // when it was written, in milliseconds since 1970, on the writer's clock
	Key      string    `json:"p,omitempty"` // of the message, see keyOf
	Nonce    string    `json:"c,omitempty"` // of a start; of a question: its own
	Node     string    `json:"n,omitempty"`
	Nodes    []string  `json:"ns,omitempty"` // that live
	Start    time.Time `json:"s,omitzero"`   // when the handler started
	Alone    bool      `json:"a,omitempty"`
	Verdict  int       `json:"v,omitempty"`
	Messages []byte    `json:"m,omitempty"` // acknowledged ones, 8 bytes each, see messageKey.short
}

// The kinds of notes.
const (
	noteStart   = "start"
	noteVerdict = "verdict"
	noteAsk     = "ask"  // does a node live?
	noteHere    = "here" // nodes do
	noteLeft    = "left" // a node ended in order
	noteAck     = "ack"
	noteMark    = "mark" // a reader wants to know what stands before it
	noteMade    = "made" // the stream was made after At
)

func (n *note) encode() []byte {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // no field can fail
	}
	return b
}

// messageKey names a message in notes: the beginning of a SHA-256, so that notes are small and any
// id can be written.
type messageKey [16]byte

// keyOf returns the key of a message. One without an id is named by its content.
func keyOf(queue, id string, generation int, body []byte) messageKey {
	h := sha256.New()
	h.Write([]byte(strconv.Itoa(generation) + "/" + queue + "/" + id)) // the queue's name has no slash
	if id == "" {
		h.Write(body)
	}
	return messageKey(h.Sum(nil))
}

func (k messageKey) String() string { return base64.RawURLEncoding.EncodeToString(k[:]) }

// start returns the start that a note tells of.
func (n *note) start() (broker.Start, messageKey, bool) {
	b, err := base64.RawURLEncoding.DecodeString(n.Key)
	if err != nil || len(b) != len(messageKey{}) {
		return broker.Start{}, messageKey{}, false
	}
	return broker.Start{
		Nonce: n.Nonce, Node: n.Node, Alone: n.Alone, At: n.Start, Verdict: broker.StartVerdict(n.Verdict),
	}, messageKey(b), true
}
