package events

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Types of events that producers and consumers send about themselves. The wire format says "worker"
// for a node, which is a producer or a consumer. The names are part of the wire format.
const (
	WorkerOnline    = "worker-online"    // a node starts
	WorkerHeartbeat = "worker-heartbeat" // a node is alive; see [Worker].Freq
	// a node has ended, or an observer has not received its heartbeats for too long
	WorkerOffline = "worker-offline"
)

// WorkerTypes returns the types of events about nodes, for a [Filter].
func WorkerTypes() []string { return []string{WorkerOnline, WorkerHeartbeat, WorkerOffline} }

// Values of [Worker].Role that this module writes.
const (
	RoleConsumer = "consumer"
	RoleProducer = "producer"
)

// Worker holds the fields of an event about a node, beside NodeID and Time. The comments begin with
// the wire names.
type Worker struct {
	Hostname string        // hostname: the name of the machine
	Role     string        // role: [RoleConsumer] or [RoleProducer]
	Freq     time.Duration // freq, in milliseconds: time between heartbeats; 0: none, or not known
	Ident    string        // sw_ident: the name of the software
	Version  string        // sw_ver: its version
	System   string        // sw_sys: the operating system and the architecture
	// active: the number of handlers that run now. 0 for a producer.
	Active int
	// reserved: the number of tasks that wait in a consumer before they start. stuck: the number of
	// handlers that run beyond their time limit. Both are sent only if they are not 0.
	Reserved, Stuck int
	// processed: the number of attempts that have ended since the node started, or of tasks that a
	// producer has sent. At most 2^53.
	Processed int64
	// load: the machine's load average of the last minute, divided by its processors. mem: the used
	// part of its memory. Both are 0 to 1. Negative: not known and not sent.
	Load, Mem float64
	// queues: the names of the queues of a consumer, at most 64. Sent only if there are any.
	Queues []string
	// observer: the node that sends a worker-offline about another one. "": the node itself.
	Observer string
}

const (
	maxFreq      = math.MaxInt32 * time.Millisecond
	maxQueues    = 64
	maxProcessed = 1 << 53 // largest range that JSON numbers hold exactly in every language
)

// ofWorker reports whether events of type typ have a Worker.
func ofWorker(typ string) bool {
	return typ == WorkerOnline || typ == WorkerHeartbeat || typ == WorkerOffline
}

// workerField reports whether name is the wire name of a field of Worker.
func workerField(name string) bool {
	switch name {
	case "hostname", "role", "freq", "sw_ident", "sw_ver", "sw_sys", "active", "reserved", "stuck", "processed", "load", "mem", "queues", "observer":
		return true
	}
	return false
}

// normalWorker returns a copy of w within the limits of the wire format, or nil for nil. Texts
// are cut, counts and times limited, Load and Mem are 0 to 1 or -1, and at most 64 queues remain.
func normalWorker(w *Worker) *Worker {
	if w == nil {
		return nil
	}
	return &Worker{
		Hostname:  cut(w.Hostname, maxLabel),
		Role:      cut(w.Role, maxLabel),
		Freq:      min(max(w.Freq, 0), maxFreq).Truncate(time.Millisecond),
		Ident:     cut(w.Ident, maxLabel),
		Version:   cut(w.Version, maxLabel),
		System:    cut(w.System, maxLabel),
		Active:    count(w.Active),
		Reserved:  count(w.Reserved),
		Stuck:     count(w.Stuck),
		Processed: min(max(w.Processed, 0), maxProcessed),
		Load:      fraction(w.Load),
		Mem:       fraction(w.Mem),
		Queues:    normalQueues(w.Queues),
		Observer:  cut(w.Observer, maxLabel),
	}
}

// normalQueues returns a copy of the first maxQueues names, each cut to maxLabel bytes, or nil for
// an empty list.
func normalQueues(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	names = slices.Clone(names[:min(len(names), maxQueues)])
	for i := range names {
		names[i] = cut(names[i], maxLabel)
	}
	return names
}

// fraction returns f limited to 1 and rounded to four decimal places, or -1 if f is negative or not
// a number.
func fraction(f float64) float64 {
	if f < 0 || math.IsNaN(f) {
		return -1
	}
	return math.Round(min(f, 1)*1e4)/1e4 + 0 // adding 0 removes a negative zero
}

// appendWorker normalizes w and appends its fields as JSON members. It omits reserved and stuck if
// they are 0, load and mem if they are negative, and empty queues and observer.
func appendWorker(dst []byte, w *Worker) []byte {
	w = normalWorker(w)
	dst = appendText(dst, `,"hostname":"`, w.Hostname, maxLabel)
	dst = appendText(dst, `,"role":"`, w.Role, maxLabel)
	dst = appendInt(dst, `,"freq":`, w.Freq.Milliseconds())
	dst = appendText(dst, `,"sw_ident":"`, w.Ident, maxLabel)
	dst = appendText(dst, `,"sw_ver":"`, w.Version, maxLabel)
	dst = appendText(dst, `,"sw_sys":"`, w.System, maxLabel)
	dst = appendInt(dst, `,"active":`, int64(w.Active))
	if w.Reserved > 0 {
		dst = appendInt(dst, `,"reserved":`, int64(w.Reserved))
	}
	if w.Stuck > 0 {
		dst = appendInt(dst, `,"stuck":`, int64(w.Stuck))
	}
	dst = appendInt(dst, `,"processed":`, w.Processed)
	if w.Load >= 0 {
		dst = strconv.AppendFloat(append(dst, `,"load":`...), w.Load, 'f', -1, 64)
	}
	if w.Mem >= 0 {
		dst = strconv.AppendFloat(append(dst, `,"mem":`...), w.Mem, 'f', -1, 64)
	}
	for i, q := range w.Queues {
		name := `,"`
		if i == 0 {
			name = `,"queues":["`
		}
		dst = appendText(dst, name, q, maxLabel)
	}
	if len(w.Queues) > 0 {
		dst = append(dst, ']')
	}
	if w.Observer != "" {
		dst = appendText(dst, `,"observer":"`, w.Observer, maxLabel)
	}
	return dst
}

// takeWorker moves the members of e.Fields with the names of Worker fields to e.Worker. A null
// value counts as absent. If none is present e.Worker stays nil. Returns ErrMalformed for a value
// of a wrong type or out of range; e is then half changed.
func (e *Event) takeWorker() error {
	w := Worker{Load: -1, Mem: -1}
	found := false
	for name, v := range e.Fields {
		if !workerField(name) {
			continue
		}
		delete(e.Fields, name)
		if v == nil {
			continue
		}
		found = true
		if !w.set(name, v) {
			return fmt.Errorf("%w: the field %s has a wrong type or is out of range", ErrMalformed, name)
		}
	}
	if found {
		e.Worker = &w
	}
	return nil
}

// set sets the field of w with the given wire name to v. It reports whether name is known and v has
// the right type and range. If not, the field may hold any value.
func (w *Worker) set(name string, v any) bool {
	text := func(to *string) bool {
		s, ok := v.(string)
		*to = s
		return ok
	}
	number := func(most float64, to *float64) bool {
		f, ok := v.(float64)
		*to = f
		return ok && f >= 0 && f <= most
	}
	var f float64
	ok := false
	switch name {
	case "hostname":
		ok = text(&w.Hostname)
	case "role":
		ok = text(&w.Role)
	case "sw_ident":
		ok = text(&w.Ident)
	case "sw_ver":
		ok = text(&w.Version)
	case "sw_sys":
		ok = text(&w.System)
	case "observer":
		ok = text(&w.Observer)
	case "queues":
		ok = w.setQueues(v)
	case "freq":
		ok = number(float64(maxFreq/time.Millisecond), &f)
		w.Freq = time.Duration(int64(f)) * time.Millisecond
	case "active":
		ok = number(math.MaxInt32, &f)
		w.Active = int(f)
	case "reserved":
		ok = number(math.MaxInt32, &f)
		w.Reserved = int(f)
	case "stuck":
		ok = number(math.MaxInt32, &f)
		w.Stuck = int(f)
	case "processed":
		ok = number(maxProcessed, &f)
		w.Processed = int64(f)
	case "load":
		ok = number(math.MaxFloat64, &w.Load)
	case "mem":
		ok = number(math.MaxFloat64, &w.Mem)
	}
	return ok
}

// setQueues appends the texts of the list v to w.Queues. It reports whether v is a list of texts.
// If not, w.Queues may be half set.
func (w *Worker) setQueues(v any) bool {
	list, ok := v.([]any)
	for _, q := range list {
		s, isText := q.(string)
		ok = ok && isText
		w.Queues = append(w.Queues, s)
	}
	return ok
}
