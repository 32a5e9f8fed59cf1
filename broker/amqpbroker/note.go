package amqpbroker

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// note is one entry of a stream of notes, in JSON. A reader ignores fields that it does not know.
type note struct {
	Kind string `json:"k"`
	// when it was written on the writer's clock, in milliseconds since 1970
	At      int64     `json:"t"`
	Key     string    `json:"p,omitempty"` // of the message, see keyOf
	Nonce   string    `json:"c,omitempty"` // of a start; the id of a question
	Node    string    `json:"n,omitempty"`
	Nodes   []string  `json:"ns,omitempty"` // the nodes that answer
	Start   time.Time `json:"s,omitzero"`   // when the handler started
	Alone   bool      `json:"a,omitempty"`
	Verdict int       `json:"v,omitempty"`
	// keys of acknowledged messages, 8 bytes each, see messageKey.prefix64
	Messages []byte `json:"m,omitempty"`
}

// The kinds of notes.
const (
	noteStart   = "start"
	noteVerdict = "verdict"
	noteAsk     = "ask"  // asks whether a node is alive
	noteAlive   = "here" // answers for nodes that are alive
	noteLeft    = "left" // a node ended in order
	noteAck     = "ack"
	noteMark    = "mark" // written by a reader that wants to read all notes before it
	noteCreated = "made" // the first note of a stream that was created after At
)

// encode returns the note in JSON.
func (n *note) encode() []byte {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // no field can fail
	}
	return b
}

// messageKey names a message in notes. It is the first half of a SHA-256 hash, so that notes are
// small and every id fits.
type messageKey [16]byte

// keyOf returns the key of a message: the hash of its generation, queue and id. If the id is empty,
// the body is hashed too.
func keyOf(queue, id string, generation int, body []byte) messageKey {
	h := sha256.New()
	h.Write([]byte(strconv.Itoa(generation) + "/" + queue + "/" + id)) // a queue name has no slash
	if id == "" {
		h.Write(body)
	}
	return messageKey(h.Sum(nil))
}

// String returns the key in base64, as it is written in notes.
func (k messageKey) String() string { return base64.RawURLEncoding.EncodeToString(k[:]) }

// start returns the start that a note describes, without ID and Generation, and the key of its
// message. It returns false if the note has no valid key.
func (n *note) start() (broker.Start, messageKey, bool) {
	b, err := base64.RawURLEncoding.DecodeString(n.Key)
	if err != nil || len(b) != len(messageKey{}) {
		return broker.Start{}, messageKey{}, false
	}
	return broker.Start{
		Nonce: n.Nonce, Node: n.Node, Alone: n.Alone, At: n.Start, Verdict: broker.StartVerdict(n.Verdict),
	}, messageKey(b), true
}
