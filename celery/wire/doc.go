// Package wire converts tasks and results to and from what Celery sends, version 2 of its message
// protocol. It does no I/O.
//
//   - [Format] converts messages: a task with its chain, callbacks, error callbacks and chord.
//   - [JSONArgs] and [MsgpackArgs] are the serializers of a task's arguments. They bind positional
//     and keyword arguments to a Go variable.
//   - [EncodeResult] and [DecodeResult] convert the documents of results.
//   - [ToException] and [FromException] convert errors.
//
// # Limits
//
// Pickle and YAML are refused, since pickle runs code of the sender. Priorities, times and time
// limits are converted. Maps (one member for each element of a list), references to groups, the
// policies Collect and Ignore, and sealed or compressed arguments cannot be written.
package wire

// Content types of a task's encoded arguments: a list of the positional arguments and the map of
// the keyword arguments.
const (
	ContentJSONArgs    = "application/vnd.celery+json"
	ContentMsgpackArgs = "application/vnd.celery+msgpack"
)

// Content type of Celery's msgpack messages. Those in JSON have [serializer.ContentJSON].
const ContentMsgpack = "application/x-msgpack"

// Names of tasks that every Celery application has.
const (
	nameChain      = "celery.chain"
	nameGroup      = "celery.group"
	nameChord      = "celery.chord"
	nameAccumulate = "celery.accumulate"
)
