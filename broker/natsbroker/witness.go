package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

const (
	// keepNotes is how long the notes of a message are kept after the last one, and the word of a
	// node that left.
	keepNotes = 24 * time.Hour
	// noteTry is how long an answer is waited for: a leader that has just died gives none.
	noteTry = 5 * time.Second
)

// witness is what a Broker needs for notes of starts.
type witness struct {
	mu    sync.Mutex
	nodes map[string]*nats.Subscription // by which nodes that noted a start answer; nil: it has left
	enter chan struct{}                 // holds one value while a node becomes present
}

// note is a note of a start as the stream keeps it, in a list.
type note struct {
	Nonce   string `json:"nonce"`
	Node    string `json:"node"`
	Alone   bool   `json:"alone,omitempty"`
	At      int64  `json:"at"` // microseconds since 1970
	Verdict int    `json:"verdict,omitempty"`
}

// noteStore is where notes are stored. Servers with a TTL for single messages keep them in the
// stream of messages, which exists already: a new stream cannot be made while a node of a cluster
// is down. Other servers keep them in a stream of their own with a maximum age.
type noteStore struct {
	stream string
	prefix string // of the subjects
	ttl    bool   // each message has its time
}

// openNotes sees to it that notes can be stored.
func (b *Broker) openNotes(ctx context.Context) (noteStore, error) {
	f, err := b.ready(ctx)
	if err != nil {
		return noteStore{}, err
	}
	st := noteStore{stream: b.names.stream, prefix: b.names.prefix, ttl: f.ttl}
	if !f.ttl {
		st.stream, st.prefix = b.names.notes, b.names.prefix+"O."
	}
	if f.notes.Load() {
		return st, nil
	}
	select {
	case b.making <- struct{}{}:
		defer func() { <-b.making }()
	case <-ctx.Done():
		return st, unavailable(ctx)
	case <-b.stop.Done():
		return st, errClosed()
	}
	if f.notes.Load() {
		return st, nil
	}
	if f.ttl {
		_, err = b.conn.EnsureStream(ctx, b.streamConfig(), b.withSubjects)
	} else {
		_, err = b.conn.EnsureStream(ctx, b.notesConfig(st), nil)
	}
	f.notes.Store(err == nil)
	return st, err
}

// withSubjects adds to the configuration of an existing stream the subjects that older programs
// have left out. These go on with it as before.
func (b *Broker) withSubjects(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
	all := slices.Clone(have.Subjects)
	for _, s := range b.names.subjects() {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	change := len(all) > len(have.Subjects)
	have.Subjects = all
	return have, change
}

// notesConfig describes a stream of its own for notes.
func (b *Broker) notesConfig(st noteStore) jetstream.StreamConfig {
	c := b.streamConfig()
	return jetstream.StreamConfig{
		Name:              st.stream,
		Description:       "swarmiji notes of starts",
		Subjects:          noteSubjects(st.prefix),
		Retention:         jetstream.LimitsPolicy,
		Storage:           c.Storage,
		Replicas:          c.Replicas,
		MaxMsgsPerSubject: 1,
		MaxAge:            keepNotes,
		Discard:           jetstream.DiscardOld,
	}
}

// read returns the newest message of a subject.
func (st noteStore) read(ctx context.Context, b *Broker, subject string) (*natsconn.Stored, error) {
	return b.conn.GetLast(ctx, st.stream, st.prefix+subject)
}

// write stores a message in the place of the newest one of its subject. Its header may say which
// sequence that one must have.
func (st noteStore) write(ctx context.Context, b *Broker, m *nats.Msg) error {
	m.Subject = st.prefix + m.Subject
	if m.Header == nil {
		m.Header = make(nats.Header)
	}
	if st.ttl {
		m.Header[headerTTL] = []string{keepNotes.String()}
	}
	ctx, cancel := context.WithTimeout(ctx, noteTry)
	defer cancel()
	_, err := b.conn.Publish(ctx, m)
	return err
}

// NoteStart implements [broker.Witness]. The first note of a message is one trip, each further one
// three.
func (b *Broker) NoteStart(ctx context.Context, queue string, s broker.Start) ([]broker.Start, error) {
	earlier, err := b.noteStart(ctx, queue, s)
	return earlier, wrap(err, "note a start in", queue)
}

func (b *Broker) noteStart(ctx context.Context, queue string, s broker.Start) (earlier []broker.Start, err error) {
	subject, err := b.notesOf(ctx, queue, s)
	if err != nil {
		return nil, err
	}
	if err := b.appear(ctx, s.Node); err != nil {
		return nil, err
	}
	err = b.editNotes(ctx, subject, true, func(have []broker.Start) (next []broker.Start, change bool) {
		for i := range have {
			have[i].ID, have[i].Generation = s.ID, s.Generation
			change = change || have[i].Nonce == s.Nonce
		}
		next, earlier = broker.AddStart(have, s)
		return next, !change
	})
	return earlier, err
}

// JudgeStart implements [broker.Witness].
func (b *Broker) JudgeStart(ctx context.Context, queue string, s broker.Start) error {
	return wrap(b.judgeStart(ctx, queue, s), "judge a start in", queue)
}

func (b *Broker) judgeStart(ctx context.Context, queue string, s broker.Start) error {
	subject, err := b.notesOf(ctx, queue, s)
	if err != nil {
		return err
	}
	return b.editNotes(ctx, subject, false, func(have []broker.Start) (next []broker.Start, change bool) {
		for i := range have {
			if have[i].Nonce == s.Nonce && have[i].Verdict != s.Verdict {
				have[i].Verdict, change = s.Verdict, true
			}
		}
		return have, change
	})
}

// notesOf checks a start and returns the subject of its message's notes.
func (b *Broker) notesOf(ctx context.Context, queue string, s broker.Start) (string, error) {
	if err := s.Check(); err != nil {
		return "", err
	}
	token, err := idToken(s.ID)
	if err != nil {
		return "", err
	}
	if _, err := b.queue(ctx, queue); err != nil {
		return "", err
	}
	return noteSubject(queue, token, s.Generation), nil
}

// editNotes replaces the notes of a message by what edit makes of them, unless that is no change.
// With blind it begins as if there were none. It is repeated until ctx ends when it is not known
// whether the server has taken it: what was stored shows then.
func (b *Broker) editNotes(ctx context.Context, subject string, blind bool, edit func(have []broker.Start) (next []broker.Start, change bool)) error {
	for {
		st, err := b.openNotes(ctx)
		if err != nil {
			return err
		}
		var (
			have []broker.Start
			seq  uint64
		)
		if !blind {
			have, seq, err = b.readNotes(ctx, st, subject)
		}
		if err == nil {
			next, change := edit(have)
			if !change {
				return nil
			}
			err = b.writeNotes(ctx, st, subject, seq, next)
		}
		blind = false
		if err == nil || !b.noteAgain(ctx, err) {
			return err
		}
	}
}

// noteAgain reports whether what failed in the stream of notes is to be tried again, and waits if
// that is better. All that is done there may be repeated.
func (b *Broker) noteAgain(ctx context.Context, err error) bool {
	switch {
	case errors.Is(err, natsconn.ErrWrongSequence):
		return true
	case errors.Is(err, natsconn.ErrNoStream):
		if f := b.features.Load(); f != nil && !f.ttl {
			f.notes.Store(false) // it is the stream of notes alone
		} else {
			b.streamGone(ctx)
		}
		return b.pause(ctx, busyPause)
	case errors.Is(err, natsconn.ErrIndeterminate):
		return ctx.Err() == nil && b.stop.Err() == nil
	default:
		return b.again(ctx, err)
	}
}

func (b *Broker) readNotes(ctx context.Context, store noteStore, subject string) ([]broker.Start, uint64, error) {
	st, err := store.read(ctx, b, subject)
	if errors.Is(err, natsconn.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var list []note
	if err := json.Unmarshal(st.Data, &list); err != nil {
		return nil, 0, fmt.Errorf("%w: notes of starts: %w", broker.ErrMalformed, err)
	}
	have := make([]broker.Start, len(list))
	for i, n := range list {
		have[i] = broker.Start{Nonce: n.Nonce, Node: n.Node, Alone: n.Alone, At: time.UnixMicro(n.At), Verdict: broker.StartVerdict(n.Verdict)}
	}
	return have, st.Seq, nil
}

// writeNotes stores the notes of a message in the place of those that were read.
func (b *Broker) writeNotes(ctx context.Context, st noteStore, subject string, seq uint64, all []broker.Start) error {
	list := make([]note, len(all))
	for i, s := range all {
		list[i] = note{Nonce: s.Nonce, Node: s.Node, Alone: s.Alone, At: s.At.UnixMicro(), Verdict: int(s.Verdict)}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return st.write(ctx, b, &nats.Msg{Subject: subject, Data: data, Header: nats.Header{headerExpectedSeq: {strconv.FormatUint(seq, 10)}}})
}
