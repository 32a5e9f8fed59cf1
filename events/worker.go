package events

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// The types of events that producers and consumers send about themselves. "Worker" is the word of the wire format; what is
// meant is a node: a producer or a consumer. The names are part of the wire format.
const (
	WorkerOnline    = "worker-online"    // a node begins
	WorkerHeartbeat = "worker-heartbeat" // a node is alive; see [Worker].Freq
	WorkerOffline   = "worker-offline"   // a node has ended, by itself, or an observer has not heard of it for too long
)

// WorkerTypes returns the types of events about nodes, for a [Filter].
func WorkerTypes() []string { return []string{WorkerOnline, WorkerHeartbeat, WorkerOffline} }

// The values of [Worker].Role that this module writes.
const (
	RoleConsumer = "consumer"
	RoleProducer = "producer"
)

// Worker is what an event about a node says beside its NodeID and Time. The names on the wire stand beside the fields.
type Worker struct {
	Hostname string        // hostname: of the machine
	Role     string        // role: [RoleConsumer] or [RoleProducer]
	Freq     time.Duration // freq, in milliseconds: how often heartbeats come; 0 for never or not known
	Ident    string        // sw_ident: the software's name
	Version  string        // sw_ver
	System   string        // sw_sys: the operating system and the architecture
	// Active (active) is how many handlers run now; of a producer 0.
	Active int
	// Reserved (reserved) is how many tasks wait in a consumer before they start, and Stuck (stuck)
	// how many handlers go on beyond their time limit. Both are on the wire only if they are not 0.
	Reserved, Stuck int
	// Processed (processed) is how many runs of handlers have ended since the node began, or how many tasks a producer has
	// sent. At most 2^53.
	Processed int64
	// Load (load) is the load of the machine in the last minute for each of its processors, and Mem (mem) the used part
	// of its memory, both 0 to 1. Negative: not known, and not on the wire.
	Load, Mem float64
	// Observer (observer) is the node that sends a worker-offline about another one. "": the node itself.
	Observer string
}

const (
	maxFreq      = math.MaxInt32 * time.Millisecond
	maxProcessed = 1 << 53 // what a number of JSON can hold exactly in every language
)

// ofWorker reports whether a type of events has a Worker.
func ofWorker(typ string) bool {
	return typ == WorkerOnline || typ == WorkerHeartbeat || typ == WorkerOffline
}

// workerField reports whether a name belongs to a Worker's fields on the wire.
func workerField(name string) bool {
	switch name {
	case "hostname", "role", "freq", "sw_ident", "sw_ver", "sw_sys", "active", "reserved", "stuck", "processed", "load", "mem", "observer":
		return true
	}
	return false
}

// normalWorker returns a copy of w as it travels; nil for nil.
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
		Load:      part(w.Load),
		Mem:       part(w.Mem),
		Observer:  cut(w.Observer, maxLabel),
	}
}

// part returns f as a part of a whole, with four places, -1 where it is not known.
func part(f float64) float64 {
	if f < 0 || math.IsNaN(f) {
		return -1
	}
	return math.Round(min(f, 1)*1e4)/1e4 + 0 // no negative zero
}

// appendWorker appends all fields of w.
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
	if w.Observer != "" {
		dst = appendText(dst, `,"observer":"`, w.Observer, maxLabel)
	}
	return dst
}

// takeWorker moves the fields of a Worker that were read as further fields to their place. Null counts as absent; a value
// of a wrong type or out of range makes the message malformed, like that of any other field.
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
			return fmt.Errorf("%w: bad %s", ErrMalformed, name)
		}
	}
	if found {
		e.Worker = &w
	}
	return nil
}

// set sets the field of a name and reports whether v can be its value.
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
