package task

import "time"

// EnvelopeVersion is the version that this code writes. A reader accepts a higher one and keeps the fields it does not know.
const EnvelopeVersion = 1

// Envelope is a task on its way: what a Format writes into a broker's message and reads out of it again. It is a superset
// of the headers of Celery's message protocol 2 (https://docs.celeryq.dev/en/stable/internals/protocol.html).
// Whoever holds an Envelope owns it; it is not safe for concurrent change.
type Envelope struct {
	Version    int    // 0 is written as EnvelopeVersion
	ID         ID     // of this task, the same through all its retries
	Root       ID     // first task of the workflow; "" means ID itself
	Parent     ID     // task that sent this one; "" for none
	Group      ID     // group this task is a member of; "" for none
	GroupIndex int    // place in the group, from 0
	GroupSize  int    // members of the group; 0: not known yet, another member tells
	Name       string // of the handler; "" for raw bytes that run as their queue's task

	ContentType string // of Args; "" means the default serializer's
	Args        []byte // serialized arguments, opaque until the handler is known

	Meta Metadata  // what the task's definition and its call set, the call over the definition
	Base *Metadata // the producer's static configuration, the lowest layer: it travels apart, so that the consumer's own can override it; nil for none

	Retries int // attempts before this one that ended with a retry
	Crashes int // counted by older versions; consumers of this one neither read it nor count here
	Parked  int // times it was put aside because no handler of its name was registered

	// Life is how often the task, or the step that it follows, was put back from the dead letters. The counts above are of this life.
	Life int

	SentAt      time.Time // when the producer submitted it, on the producer's clock; milliseconds on the wire
	Origin      string    // node id of the producer
	ReplyTo     string    // node id to which a reply-queue result store sends the result; "" for none
	Correlation string    // free text of the caller, copied into the result
	Headers     map[string]string

	Then  []Link // tasks to submit when this one succeeded
	Else  []Link // tasks to submit when it failed for good
	Chord *Link  // task to submit when the whole group is done
	Copy  string // names this sending of a successor, so that of two copies of it only one is run; "" for a submitted task

	Unknown []byte // fields of a newer writer, verbatim in the encoding of the Format that read them; written back by the same Format
}

// RootID returns the first task of the workflow: Root, or ID where Root is empty.
func (e *Envelope) RootID() ID {
	if e.Root != "" {
		return e.Root
	}
	return e.ID
}

// Feed says what a successor gets of its parent's result.
type Feed string

// The ways to hand a result on. The zero value is FeedWhole.
const (
	FeedWhole   Feed = ""        // the result is the successor's whole arguments
	FeedInto    Feed = "into"    // the result goes into the field named by Link.Field of the successor's own arguments
	FeedPrepend Feed = "prepend" // the result becomes the first element of the successor's list of arguments
	FeedNone    Feed = "none"    // immutable: the successor keeps its own arguments
)

// Link is a successor that travels inside its parent's message. Its ID and queue are chosen at submission, so that a
// future for it can be had at once and so that the producer may die. An ID of "" is derived from the parent's when the
// successor is sent.
//
// A link with Members is a group: all of them are sent, and Chord when all of them are done. Its ID is the group's; it has
// no Name, and of the other fields it uses Each, Policy, Last, Feed and Queue only.
type Link struct {
	ID          ID
	Queue       string
	Name        string
	ContentType string
	Args        []byte
	Meta        Metadata
	Feed        Feed
	Field       string // for FeedInto
	Then, Else  []Link
	ReplyTo     string // as in Envelope; "": the parent's
	Last        bool   // the successor takes its parent's place in the group: it, not the parent, is the end of the member

	Members []Link // of a group
	Each    bool   // the group has a member like Members[0] for each element of the list that is handed on
	Policy  Policy // of a group, and of the Chord of an envelope
	Chord   *Link  // of a group: what follows it. Of any other link: what follows the group it is a member of

	Group      ID  // group this successor is a member of; "" for none. Used in a Chord only: other links get it when they are sent
	GroupIndex int // as in Envelope
	GroupSize  int
}
