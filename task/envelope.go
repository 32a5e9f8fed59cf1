package task

import "time"

// EnvelopeVersion is the version that this code writes. Readers accept a higher version and keep
// the fields that they do not know.
const EnvelopeVersion = 1

// Envelope is a task as it travels: a Format writes it into a broker's message and reads it back.
// It is a superset of the headers of Celery's message protocol 2
// (https://docs.celeryq.dev/en/stable/internals/protocol.html). Not safe for concurrent use.
type Envelope struct {
	Version    int    // 0 is written as EnvelopeVersion
	ID         ID     // the same through all retries of the task
	Root       ID     // id of the workflow, which is that of its last step; "": ID itself
	Parent     ID     // task that sent this one; "": none
	Group      ID     // group of this task; "": none
	GroupIndex int    // place in the group, from 0
	GroupSize  int    // members of the group; 0: not known yet, another member knows it
	Name       string // task name; "": raw bytes for the task of their queue

	ContentType string // of Args; "": that of the default serializer
	Args        []byte // encoded arguments

	Meta Metadata // metadata of the definition, overridden by those of the call
	// The producer's static configuration, the lowest layer of metadata. It travels separately so that
	// the consumer's configuration can override it. nil: not set.
	Base *Metadata

	Retries int // earlier attempts that ended with a retry
	Crashes int // written by older versions; neither read nor changed by this one
	Parked  int // how often the task was delayed because no handler was registered

	// Life counts how often the dead letter of the task, or of a step before it, was requeued. The
	// counts above belong to this life.
	Life int

	SentAt      time.Time // time of the submission by the producer's clock; milliseconds on the wire
	Origin      string    // node id of the producer
	ReplyTo     string    // node id to which a reply-queue result store sends the result; "": none
	Correlation string    // text of the caller, copied into the result
	Headers     map[string]string

	Then  []Link // tasks to submit after a success
	Else  []Link // tasks to submit after a failure
	Chord *Link  // task to submit after the end of the whole group
	// Name of this copy of a successor, of which only one copy runs. "": a submitted task.
	Copy string
	// Burst names the burst of the task and this message of it, see [Burst]. Producers and consumers
	// write it. "": no burst.
	Burst string

	// Fields of a newer writer, in the encoding of the Format that read them. The same Format writes
	// them back.
	Unknown []byte
}

// RootID returns the id of the workflow: Root, or ID if Root is empty. A task without a workflow is
// the root of the tasks that follow it. For older producers the root of a workflow is its first
// step.
func (e *Envelope) RootID() ID {
	if e.Root != "" {
		return e.Root
	}
	return e.ID
}

// Feed selects how a successor gets its parent's result.
type Feed string

// How a result is passed on. The zero value is FeedWhole.
const (
	FeedWhole Feed = "" // the result is the successor's whole arguments
	// the result goes into the field Link.Field of the successor's own arguments
	FeedInto    Feed = "into"
	FeedPrepend Feed = "prepend" // the result is prepended to the successor's list of arguments
	FeedNone    Feed = "none"    // the successor keeps its own arguments
)

// Link is a successor that travels in its parent's message. Its ID and queue are chosen at
// submission: its future exists at once, and the producer may end. An empty ID is derived from the
// parent's ID when the successor is sent.
//
// A link with Members is a group: all members are sent, and Chord follows when all have ended. Its
// ID is the group's id. It has no Name and uses only Each, Policy, Last, Feed and Queue of the
// other fields.
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
	ReplyTo     string // as in Envelope; "": that of the parent
	// The successor gets the headers of its parent without those in Without, overridden by Headers.
	Headers     map[string]string
	Without     []string
	Correlation Opt[string] // overrides that of the parent
	Last        bool        // the successor is the last task of the group's member, not its parent

	Members []Link // members of a group
	// the group has one member like Members[0] for each element of the list that it gets
	Each   bool
	Policy Policy // of a group, and of the Chord of an envelope
	// of a group: the task that follows it; of another link: the task that follows the group of the
	// link
	Chord *Link

	// Group of this successor; "": none. Only a Chord sets it: other links get it when they are sent.
	Group      ID
	GroupIndex int // as in Envelope
	GroupSize  int
}
