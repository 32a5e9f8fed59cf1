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
	// noteRetention is the retention of the notes of a message, from the last note on, and of a node's
	// message that it left.
	noteRetention = 24 * time.Hour
	// noteTimeout limits the wait for one answer: a leader that has just died gives none.
	noteTimeout = 5 * time.Second
)

// witness holds the state of a Broker for notes of starts.
type witness struct {
	mu sync.Mutex
	// nodes that noted a start and the subscriptions with which they answer; nil: it has left
	nodes map[string]*nats.Subscription
	enter chan struct{} // holds one value while a node becomes present
}

// note is the stored form of a note of a start. The stream holds a list of them.
type note struct {
	Nonce   string `json:"nonce"`
	Node    string `json:"node"`
	Alone   bool   `json:"alone,omitempty"`
	At      int64  `json:"at"` // microseconds since 1970
	Verdict int    `json:"verdict,omitempty"`
}

// noteStore is the place where notes are stored. Servers that support a TTL for single messages
// store them in the stream of messages, which exists already. A new stream could not be created
// while a node of a cluster is down. Other servers store them in a separate stream with a maximum
// age.
type noteStore struct {
	stream string
	prefix string // of the subjects
	ttl    bool   // each message has an expiry
}

// ensureNoteStore makes sure that notes can be stored and returns where. The first call adds the
// subjects of notes to the stream of messages, or creates the separate stream on servers before
// 2.11. Later calls send nothing. Returns ErrUnavailable if ctx ends while another call does
// this, ErrClosed after Close. It waits for the server.
func (b *Broker) ensureNoteStore(ctx context.Context) (noteStore, error) {
	f, err := b.ensureStream(ctx)
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
	case b.creating <- struct{}{}:
		defer func() { <-b.creating }()
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

// withSubjects returns an existing stream's configuration with the subjects that older programs
// have left out, and whether it changed. Older programs continue to use the stream as before.
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

// notesConfig returns the configuration of a separate stream for notes, which keeps each note for
// noteRetention. It sends nothing.
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
		MaxAge:            noteRetention,
		Discard:           jetstream.DiscardOld,
	}
}

// read returns the newest message of a subject. It waits for the server. Returns
// natsconn.ErrNotFound if no message exists.
func (st noteStore) read(ctx context.Context, b *Broker, subject string) (*natsconn.Stored, error) {
	return b.conn.GetLast(ctx, st.stream, st.prefix+subject)
}

// write stores m as the newest message of its subject, which replaces the one before it. It changes
// m: it adds the prefix to m.Subject, and the expiry if st.ttl. It waits up to noteTimeout for the
// confirmation. After natsconn.ErrIndeterminate m may be stored.
//
// If m has the header headerExpectedSeq, the message before must have that sequence. Otherwise
// write stores nothing and returns natsconn.ErrWrongSequence.
func (st noteStore) write(ctx context.Context, b *Broker, m *nats.Msg) error {
	m.Subject = st.prefix + m.Subject
	if m.Header == nil {
		m.Header = make(nats.Header)
	}
	if st.ttl {
		m.Header[headerTTL] = []string{noteRetention.String()}
	}
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	_, err := b.conn.Publish(ctx, m)
	return err
}

// NoteStart implements [broker.Witness]. It stores a note of s, waits for the confirmation, and
// returns the earlier starts of the message, with their latest verdicts. The first note of a
// message is one round trip, each further one three. The node of s answers questions about its
// presence from then on. Returns ErrMalformed if s is not valid, ErrNoQueue if the queue does not
// exist, ErrClosed after Close. If ctx ends, the note may be stored.
func (b *Broker) NoteStart(ctx context.Context, queue string, s broker.Start) ([]broker.Start, error) {
	earlier, err := b.noteStart(ctx, queue, s)
	return earlier, wrap(err, "note a start in", queue)
}

// noteStart makes the node of s present, adds s to the stored notes, and returns the earlier ones,
// with their latest verdicts. If a note with the nonce of s exists it stores nothing. It waits for
// the server. Returns the errors of noteSubjectOf, makePresent and editNotes.
func (b *Broker) noteStart(ctx context.Context, queue string, s broker.Start) (earlier []broker.Start, err error) {
	subject, err := b.noteSubjectOf(ctx, queue, s)
	if err != nil {
		return nil, err
	}
	if err := b.makePresent(ctx, s.Node); err != nil {
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

// JudgeStart implements [broker.Witness]. It changes the verdict of the stored note, waits for the
// confirmation, and does nothing if the note does not exist. Returns ErrMalformed if s is not
// valid, ErrNoQueue if the queue does not exist. If ctx ends, the verdict may be stored.
func (b *Broker) JudgeStart(ctx context.Context, queue string, s broker.Start) error {
	return wrap(b.judgeStart(ctx, queue, s), "judge a start in", queue)
}

// judgeStart stores the verdict of s in the note that has the nonce of s. It does nothing if no
// such note exists, or if the note has that verdict already. It waits for the server. Returns the
// errors of noteSubjectOf and editNotes.
func (b *Broker) judgeStart(ctx context.Context, queue string, s broker.Start) error {
	subject, err := b.noteSubjectOf(ctx, queue, s)
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

// noteSubjectOf returns the subject of the notes of the message of s. Returns ErrMalformed if s
// is not valid, ErrNoQueue if the queue does not exist. It waits for the server.
func (b *Broker) noteSubjectOf(ctx context.Context, queue string, s broker.Start) (string, error) {
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

// editNotes replaces the stored notes of a message by the first result of edit. If the second
// result, change, is false, it stores nothing and returns nil. It waits for the server.
//
// If blind is true, the first attempt assumes that no notes exist and does not read them. After a
// conflict with another process or a lost answer it reads the notes and calls edit again, until
// ctx ends. Returns the errors of ensureNoteStore, and those that retryNotes does not repeat.
func (b *Broker) editNotes(ctx context.Context, subject string, blind bool, edit func(have []broker.Start) (next []broker.Start, change bool)) error {
	for {
		st, err := b.ensureNoteStore(ctx)
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
		if err == nil || !b.retryNotes(ctx, err) {
			return err
		}
	}
}

// retryNotes reports whether an operation on the stream of notes is repeated after err, and pauses
// first if that is useful. It is repeated after a conflict, after a lost answer, and while the
// server is busy. It is also repeated if the stream is missing: retryNotes forgets the stream, so
// that the next attempt creates it again. Other errors end the operation, and so does the end of
// ctx or the Broker.
func (b *Broker) retryNotes(ctx context.Context, err error) bool {
	switch {
	case errors.Is(err, natsconn.ErrWrongSequence):
		return true
	case errors.Is(err, natsconn.ErrNoStream):
		if f := b.features.Load(); f != nil && !f.ttl {
			f.notes.Store(false) // only the stream of notes is missing
		} else {
			b.forgetStream(ctx)
		}
		return b.pause(ctx, busyPause)
	case errors.Is(err, natsconn.ErrIndeterminate):
		return ctx.Err() == nil && b.stop.Err() == nil
	default:
		return b.retryLater(ctx, err)
	}
}

// readNotes returns the stored notes of a message and the sequence under which they are stored.
// The sequence is 0 if the message has no notes. The notes have no ID and Generation. It waits for
// the server. Returns ErrMalformed if they are not JSON of the right form.
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

// writeNotes stores the notes of a message in place of the ones with sequence seq, 0 for none. It
// waits for the confirmation up to noteTimeout. Returns natsconn.ErrWrongSequence, and stores
// nothing, if the stored notes have another sequence.
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
