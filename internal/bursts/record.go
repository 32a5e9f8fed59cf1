package bursts

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Retentions and limits.
const (
	openTime  = 30 * time.Second   // of a burst whose first message is being published
	keptTime  = 8 * 24 * time.Hour // of a burst whose message is queued or delayed
	traceTime = time.Hour          // of the last burst that has ended, by which duplicates are known
	goneTime  = 24 * time.Hour     // after which a task that did not start again counts as gone
	sentAgain = time.Minute        // least time after which a message that does not come is sent again
	doubtTime = 30 * time.Second   // after which a running task is looked up by a submission
	otherTime = time.Second        // wait for another task of the key
	leaseTime = 90 * time.Second   // of a running task that is acknowledged already
	maxData   = 320 << 10          // a stored submission

	// guardGeneration keeps a guard apart from other messages with its id. A life has 1<<20
	// generations.
	guardGeneration = 1 << 16
)

// record is the state of a key. The zero value is that of a free key.
type record struct {
	Write string   `json:"write"` // makes each stored value a different one
	Wait  *waiting `json:"wait,omitempty"`
	Run   *running `json:"run,omitempty"`
}

// waiting is a burst that accepts submissions. Times are milliseconds since 1970.
type waiting struct {
	ID      task.ID         `json:"id"`
	Version string          `json:"version"`
	Data    json.RawMessage `json:"data,omitempty"` // the newest submission; nil: the message has it
	First   int64           `json:"first"`
	Due     int64           `json:"due"`
	Sent    int64           `json:"sent,omitempty"`    // the last publish; 0: unknown
	Opening bool            `json:"opening,omitempty"` // the first publish is not confirmed yet
	Guard   bool            `json:"guard,omitempty"`   // a delayed message is queued, though Sent is 0
}

// running is the last burst that a consumer has taken. It accepts no submission. Times are
// milliseconds since 1970.
type running struct {
	ID    task.ID         `json:"id"`
	Copy  string          `json:"copy"`            // the message that runs it
	Heirs []string        `json:"heirs,omitempty"` // messages with Data; the first one to come runs
	Data  json.RawMessage `json:"data,omitempty"`  // the submission for Heirs
	// Version names that submission.
	Version string `json:"version,omitempty"`
	Life    int    `json:"life,omitempty"`
	Alone   bool   `json:"alone,omitempty"` // it was not known before: see Taken
	Since   int64  `json:"since"`           // its last start, or the last Keep
	// Until is the end of the lease of a task without a message in the broker. 0: it has a message.
	Until int64 `json:"until,omitempty"`
	Ended bool  `json:"ended,omitempty"` // another task of the key may start
}

// active reports whether no other task of the key may start. r may be nil.
func (r *running) active(now time.Time) bool {
	return r != nil && !r.Ended && (r.Until == 0 || now.UnixMilli() < r.Until)
}

// overdue reports whether the message of w should have come long ago, so that another one is sent.
// The gap doubles, since the message may only wait in a long queue.
func (w *waiting) overdue(now time.Time) bool {
	gap := max(sentAgain.Milliseconds(), w.Sent-w.First)
	return w.Sent == 0 || now.UnixMilli()-max(w.Due, w.Sent) > gap
}

// ttl returns how long the record is kept.
func (r *record) ttl(now time.Time) time.Duration {
	switch active := r.Run.active(now); {
	case r.Wait != nil && r.Wait.Opening && !active:
		return openTime
	case r.Wait != nil:
		return keptTime + max(0, time.UnixMilli(r.Wait.Due).Sub(now))
	case active:
		return keptTime
	}
	return traceTime
}

// encode returns the value of r, which no other call returns.
func (r *record) encode() ([]byte, error) {
	r.Write = rand.Text()
	return json.Marshal(r)
}

// decode reads a value of a store. Returns [resultstore.ErrMalformed] for any other value.
func decode(value []byte) (*record, error) {
	r := new(record)
	if len(value) == 0 {
		return r, nil
	}
	if err := json.Unmarshal(value, r); err != nil {
		return nil, fmt.Errorf("burst: %w: %w", resultstore.ErrMalformed, err)
	}
	return r, nil
}

// dropHeirs is called when one of the heirs has come, or the task has ended.
func (r *running) dropHeirs() { r.Heirs, r.Data, r.Version = nil, nil, "" }
