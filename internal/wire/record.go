package wire

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// recordVersion is the version of the records that this code writes. A reader accepts a higher one.
const recordVersion = 1

// Keys of a record. They are part of the wire format and of stored records: a key is never reused
// for another field. A reader skips unknown keys up to 127. A record is read, never written back.
const (
	recordKeyVersion     = 0  // integer
	recordKeyID          = 1  // str
	recordKeyName        = 2  // str
	recordKeyState       = 3  // str
	recordKeyGeneration  = 4  // integer
	recordKeyDeliveries  = 5  // integer
	recordKeyRetries     = 6  // integer
	recordKeyContentType = 7  // str
	recordKeyResult      = 8  // bin
	recordKeyErrorType   = 9  // str; an error has at least this one of its three keys
	recordKeyErrorText   = 10 // str
	recordKeyErrorStack  = 11 // str
	recordKeyStartedAt   = 12 // integer, milliseconds since 1970
	recordKeyFinishedAt  = 13 // integer, milliseconds since 1970
	recordKeyNodeID      = 14 // str
	recordKeyReplyTo     = 15 // str; true: equal to the node id
	recordKeyCorrelation = 16 // str
	recordKeyStep        = 17 // str; the failed step because of which this task did not run
	recordKeyStepID      = 18 // str
	recordKeyLife        = 19 // integer
	recordKeyDone        = 20 // integer
	recordKeyTotal       = 21 // integer
	recordKeyNote        = 22 // str
	recordKeyProgressAt  = 23 // integer, milliseconds since 1970
	recordKeyErrorModule = 24 // str
	recordKeyErrorArgs   = 25 // array of any values
	recordKeyParent      = 26 // str
	recordKeyGroup       = 27 // str
	recordKeyChildren    = 28 // array of str
)

// maxStep limits the name of a step, a module and the ids of other tasks, in bytes.
const maxStep = 255

// EncodeRecord returns a record in the form in which stores keep it and reply queues carry it: a
// msgpack map with small integers as keys. TTL is not written. Texts of an error are cut to their
// limits. Returns [resultstore.ErrMalformed] for an invalid id, state, count or text.
func EncodeRecord(r *resultstore.Record) ([]byte, error) {
	if err := checkRecord(r); err != nil {
		return nil, fmt.Errorf("%w: %w", resultstore.ErrMalformed, err)
	}
	size := 64 + len(r.ID) + len(r.Name) + len(r.ContentType) + len(r.Result) + len(r.NodeID) + len(r.ReplyTo) + len(r.Correlation)
	if r.Error != nil {
		size += len(r.Error.Type) + len(r.Error.Message) + len(r.Error.Stack)
	}
	b := append(make([]byte, 0, size), 0xde, 0, 0, recordKeyVersion, recordVersion)
	n := 1
	key := func(k byte) {
		b = append(b, k)
		n++
	}
	text := func(k byte, s string) {
		if s != "" {
			key(k)
			b = rawmsgpack.AppendText(b, s)
		}
	}
	count := func(k byte, v int) {
		if v != 0 {
			key(k)
			b = rawmsgpack.AppendInt(b, int64(v))
		}
	}
	moment := func(k byte, t time.Time) {
		if !t.IsZero() {
			key(k)
			b = rawmsgpack.AppendInt(b, serializer.Milli(t))
		}
	}
	text(recordKeyID, string(r.ID))
	text(recordKeyName, r.Name)
	text(recordKeyState, string(r.State))
	count(recordKeyGeneration, r.Generation)
	count(recordKeyDeliveries, r.Deliveries)
	count(recordKeyRetries, r.Retries)
	text(recordKeyContentType, r.ContentType)
	if r.Result != nil {
		key(recordKeyResult)
		b = rawmsgpack.AppendBytes(b, r.Result)
	}
	if r.Error != nil {
		key(recordKeyErrorType)
		// the error may be made by a user
		b = rawmsgpack.AppendText(b, utf.Cut(r.Error.Type, task.MaxErrorText))
		text(recordKeyErrorText, utf.Cut(r.Error.Message, task.MaxErrorText))
		text(recordKeyErrorStack, utf.Cut(r.Error.Stack, task.MaxStack))
	}
	moment(recordKeyStartedAt, r.StartedAt)
	moment(recordKeyFinishedAt, r.FinishedAt)
	text(recordKeyNodeID, r.NodeID)
	if r.ReplyTo != "" && r.ReplyTo == r.NodeID {
		key(recordKeyReplyTo)
		b = rawmsgpack.AppendBool(b, true)
	} else {
		text(recordKeyReplyTo, r.ReplyTo)
	}
	text(recordKeyCorrelation, r.Correlation)
	if r.Error != nil {
		text(recordKeyStep, utf.Cut(r.Error.Step, maxStep))
		text(recordKeyStepID, utf.Cut(string(r.Error.StepID), maxStep))
	}
	count(recordKeyLife, r.Life)
	count(recordKeyDone, r.Progress.Done)
	count(recordKeyTotal, r.Progress.Total)
	text(recordKeyNote, utf.Cut(r.Progress.Note, task.MaxProgressNote))
	moment(recordKeyProgressAt, r.Progress.At)
	if r.Error != nil {
		text(recordKeyErrorModule, utf.Cut(r.Error.Module, maxStep))
		if args := encodeErrorArgs(r.Error.Args); args != nil {
			key(recordKeyErrorArgs)
			b = append(b, args...)
		}
	}
	text(recordKeyParent, utf.Cut(string(r.Parent), maxStep))
	text(recordKeyGroup, utf.Cut(string(r.Group), maxStep))
	if children := r.Children[:min(len(r.Children), resultstore.MaxChildren)]; len(children) > 0 {
		key(recordKeyChildren)
		b = rawmsgpack.AppendArrayLen(b, len(children))
		for _, id := range children {
			b = rawmsgpack.AppendText(b, utf.Cut(string(id), maxStep))
		}
	}
	b[2] = byte(n)
	return b, nil
}

// DecodeRecord reads the output of [EncodeRecord]. Returns [resultstore.ErrMalformed] for any other
// input, including hostile input. The record keeps no reference to data. Counts and times above
// their range are reduced to the largest value; negative counts are refused.
func DecodeRecord(data []byte) (resultstore.Record, error) {
	var rec resultstore.Record
	_, err := rawmsgpack.Check(data)
	if err == nil {
		r := rawmsgpack.NewReader(data)
		readRecord(&r, &rec)
		r.Done()
		if err = r.Err(); err == nil {
			err = checkRecord(&rec)
		}
	}
	if err != nil {
		return resultstore.Record{}, fmt.Errorf("%w: %w", resultstore.ErrMalformed, err)
	}
	return rec, nil
}

// readRecord reads the map of a record into rec. An error is recorded in r.
func readRecord(r *rawmsgpack.Reader, rec *resultstore.Record) {
	var (
		seen      rawmsgpack.Keys
		failure   task.RemoteError
		failed    bool
		replyNode bool
	)
	for n := r.MapLen(); n > 0 && r.Err() == nil; n-- {
		switch r.Key(&seen) {
		case recordKeyVersion:
			if r.Int() < 1 {
				r.Fail(fmt.Errorf("the version is below 1"))
			}
		case recordKeyID:
			rec.ID = task.ID(r.Text())
		case recordKeyName:
			rec.Name = string(r.Text())
		case recordKeyState:
			rec.State = state(r.Text())
		case recordKeyGeneration:
			rec.Generation = serializer.Count(r.Int())
		case recordKeyDeliveries:
			rec.Deliveries = serializer.Count(r.Int())
		case recordKeyRetries:
			rec.Retries = serializer.Count(r.Int())
		case recordKeyContentType:
			rec.ContentType = contentType(r.Text())
		case recordKeyResult:
			rec.Result = append([]byte{}, r.Bytes()...)
		case recordKeyErrorType:
			failure.Type, failed = string(r.Text()), true
		case recordKeyErrorText:
			failure.Message, failed = string(r.Text()), true
		case recordKeyErrorStack:
			failure.Stack, failed = string(r.Text()), true
		case recordKeyStartedAt:
			rec.StartedAt = serializer.FromMilli(r.Int())
		case recordKeyFinishedAt:
			rec.FinishedAt = serializer.FromMilli(r.Int())
		case recordKeyNodeID:
			rec.NodeID = string(r.Text())
		case recordKeyReplyTo:
			if r.IsText() {
				rec.ReplyTo = string(r.Text())
			} else {
				replyNode = r.Bool()
			}
		case recordKeyCorrelation:
			rec.Correlation = string(r.Text())
		case recordKeyStep:
			failure.Step = string(r.Text())
		case recordKeyStepID:
			failure.StepID = task.ID(r.Text())
		case recordKeyLife:
			rec.Life = serializer.Count(r.Int())
		case recordKeyDone:
			rec.Progress.Done = serializer.Count(r.Int())
		case recordKeyTotal:
			rec.Progress.Total = serializer.Count(r.Int())
		case recordKeyNote:
			rec.Progress.Note = utf.Cut(string(r.Text()), task.MaxProgressNote)
		case recordKeyProgressAt:
			rec.Progress.At = serializer.FromMilli(r.Int())
		case recordKeyErrorModule:
			failure.Module, failed = string(r.Text()), true
		case recordKeyErrorArgs:
			failure.Args, failed = decodeErrorArgs(r), true
		case recordKeyParent:
			rec.Parent = task.ID(utf.Cut(string(r.Text()), maxStep))
		case recordKeyGroup:
			rec.Group = task.ID(utf.Cut(string(r.Text()), maxStep))
		case recordKeyChildren:
			rec.Children = readChildren(r)
		default:
			r.Skip()
		}
	}
	if replyNode {
		rec.ReplyTo = rec.NodeID
	}
	if failed {
		failure.Type = utf.Cut(failure.Type, task.MaxErrorText)
		failure.Message = utf.Cut(failure.Message, task.MaxErrorText)
		failure.Stack = utf.Cut(failure.Stack, task.MaxStack)
		failure.Module = utf.Cut(failure.Module, maxStep)
		failure.Step, failure.StepID = utf.Cut(failure.Step, maxStep), task.ID(utf.Cut(string(failure.StepID), maxStep))
		rec.Error = &failure
	}
}

// readChildren reads an array of ids, of which it returns the first [resultstore.MaxChildren]. An
// error is recorded in r.
func readChildren(r *rawmsgpack.Reader) (ids []task.ID) {
	for n := r.ArrayLen(); n > 0 && r.Err() == nil; n-- {
		if id := task.ID(utf.Cut(string(r.Text()), maxStep)); len(ids) < resultstore.MaxChildren {
			ids = append(ids, id)
		}
	}
	return ids
}

// checkRecord returns an error for an invalid id, state, count or text. A name may be any text,
// because names of jobs follow other rules.
func checkRecord(r *resultstore.Record) error {
	if err := r.ID.Check(); err != nil {
		return err
	}
	if !r.State.Valid() {
		return fmt.Errorf("state %q", utf.Cut(string(r.State), 32))
	}
	if r.Generation < 0 || r.Deliveries < 0 || r.Retries < 0 || r.Life < 0 || r.Progress.Done < 0 || r.Progress.Total < 0 {
		return fmt.Errorf("negative count: generation %d, deliveries %d, retries %d, life %d", r.Generation, r.Deliveries, r.Retries, r.Life)
	}
	for _, s := range [...]string{r.Name, r.ContentType, r.NodeID, r.ReplyTo, r.Correlation} {
		if !utf8.ValidString(s) {
			return fmt.Errorf("text %q is not UTF-8", utf.Cut(s, 64))
		}
	}
	return nil
}

// state returns the constant that equals b, which saves an allocation, or else a copy of b.
func state(b []byte) task.State {
	for _, s := range [...]task.State{task.StateSucceeded, task.StateFailed, task.StateRetrying, task.StateStarted, task.StateRevoked, task.StateExpired, task.StateAwaiting, task.StateRequeued, task.StatePending} {
		if string(s) == string(b) {
			return s
		}
	}
	return task.State(b)
}

// contentType returns the constant that equals b, which saves an allocation, or else a copy of b.
func contentType(b []byte) string {
	for _, s := range [...]string{serializer.ContentMsgpack, serializer.ContentJSON, serializer.ContentRaw} {
		if s == string(b) {
			return s
		}
	}
	return string(b)
}
