package wire

import (
	"reflect"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Headers of our own in Celery's messages. Python's workers ignore them.
const (
	// headerRest holds the fields of an envelope that Celery's message does not have, in the form of
	// [serializer.RawFormat].
	headerRest = "swarmiji-celery"
	// headerChord holds ids of chords, each with the number of its members: "id 3 other 2".
	headerChord = "swarmiji-chord"
	// headerOptions, in the headers of an envelope or a link, holds the options of a signature that
	// have no field, as JSON. It never is a header of a message.
	headerOptions = "swarmiji-celery-options"
)

// carried returns m without the keys whose values Celery's message carries.
func carried(m *task.Metadata) task.Metadata {
	rest := *m
	if m.TimeLimit.Or(0) > 0 {
		rest.TimeLimit = task.Opt[time.Duration]{}
	}
	if m.SoftTimeLimit.Or(0) > 0 {
		rest.SoftTimeLimit = task.Opt[time.Duration]{}
	}
	if m.IgnoreResult.Or(false) {
		rest.IgnoreResult = task.Opt[bool]{}
	}
	if !m.NotBefore.Or(time.Time{}).IsZero() {
		rest.NotBefore = task.Opt[time.Time]{}
	}
	if !m.Expires.Or(time.Time{}).IsZero() {
		rest.Expires = task.Opt[time.Time]{}
	}
	if p, ok := m.Priority.Get(); ok && Priority(CeleryPriority(p)) == p {
		rest.Priority = task.Opt[int]{}
	}
	rest.Serializer = task.Opt[string]{} // the content type of the message says it
	return rest
}

// writeRest returns rest as a text: the fields of an envelope that Celery's message does not carry.
// It returns "" if rest is zero. Returns the error of [serializer.RawFormat].
func writeRest(rest *task.Envelope) (string, error) {
	if reflect.ValueOf(*rest).IsZero() {
		return "", nil
	}
	m, err := serializer.RawFormat{}.Encode(rest)
	if err != nil {
		return "", err
	}
	text, _ := m.Headers[serializer.EnvelopeHeader].([]byte)
	return string(text), nil
}

// readRest returns the envelope that writeRest wrote. Returns the error of [serializer.RawFormat].
func readRest(v any) (*task.Envelope, error) {
	return serializer.RawFormat{}.Decode(&broker.Message{Headers: map[string]any{serializer.EnvelopeHeader: v}})
}
