package tasktest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// sent is a task that was submitted.
type sent struct {
	queue    string
	at       time.Time // when it was submitted
	delay    time.Duration
	envelope *task.Envelope
	codec    *wire.Codec
}

// submission reads a message before it is published. The caller calls published after the
// publication. A later generation is the same task again and not a submission.
func (p *process) submission(queue string, m *broker.Message, at time.Time) (published func()) {
	e, _, err := p.codec.Decode(m)
	if err == nil {
		err = p.codec.Open(queue, e)
	}
	if m.Generation > 0 || err != nil {
		return func() {}
	}
	one := sent{queue: queue, at: time.Now(), delay: until(at), envelope: e, codec: p.codec}
	return func() {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		p.s.queues[queue] = struct{}{}
		if p.s.ids[e.ID] {
			return // sent again after an unknown outcome or a crash
		}
		p.s.ids[e.ID] = true
		p.s.sent = append(p.s.sent, one)
	}
}

// Recorder holds submissions. A *Swarm, an *Attempt and a *Fake are Recorders.
//
//   - A Swarm has the submissions of its producers and consumers, including successors.
//   - An Attempt has the submissions of the handler to the Swarm.
//   - A Fake has its calls.
//
// A retry is not a submission. A task that was sent twice under one id counts once.
type Recorder interface {
	submissions() []sent
}

func (s *Swarm) submissions() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sent(nil), s.sent...)
}

// Submission is a task that was submitted.
type Submission[A any] struct {
	Args  A
	Queue string
	Delay time.Duration // 0: at once
	At    time.Time     // when it was submitted
	// Envelope has the other fields: ID, Headers, Correlation and, in Meta, the options of the
	// definition and the call. Do not change it.
	Envelope *task.Envelope

	codec *wire.Codec
}

// Submitted returns the submissions of a task that all of match accept, in order.
func Submitted[A, R any](from Recorder, def task.Task[A, R], match ...func(*Submission[A]) bool) []*Submission[A] {
	var found []*Submission[A]
	for _, one := range from.submissions() {
		if one.envelope.Name != def.Name() {
			continue
		}
		s := &Submission[A]{Queue: one.queue, Delay: one.delay, At: one.at, Envelope: one.envelope, codec: one.codec}
		if err := one.codec.BindArgs(one.envelope.ContentType, one.envelope.Args, &s.Args); err != nil {
			panic(fmt.Sprintf("tasktest: the arguments of %s do not fit its definition: %v", def.Name(), err))
		}
		if accepted(s, match) {
			found = append(found, s)
		}
	}
	return found
}

func accepted[A any](s *Submission[A], match []func(*Submission[A]) bool) bool {
	for _, m := range match {
		if !m(s) {
			return false
		}
	}
	return true
}

// RequireSubmitted returns the one submission of a task that all of match accept. It ends the test
// if no submission or more than one matches.
func RequireSubmitted[A, R any](t testing.TB, from Recorder, def task.Task[A, R], match ...func(*Submission[A]) bool) *Submission[A] {
	if t != nil {
		t.Helper()
	}
	found := Submitted(from, def, match...)
	if len(found) != 1 {
		fatalf(t, "tasktest: %d submissions of %s match, want 1; submitted were:%s", len(found), def.Name(), list(from, def))
	}
	return found[0]
}

// RequireNotSubmitted ends the test if there is a submission of a task that all of match accept.
func RequireNotSubmitted[A, R any](t testing.TB, from Recorder, def task.Task[A, R], match ...func(*Submission[A]) bool) {
	if t != nil {
		t.Helper()
	}
	if n := len(Submitted(from, def, match...)); n > 0 {
		fatalf(t, "tasktest: %d submissions of %s match, want none; submitted were:%s", n, def.Name(), list(from, def))
	}
}

// list writes the submissions of a task and the names of the others.
func list[A, R any](from Recorder, def task.Task[A, R]) string {
	var b strings.Builder
	for _, s := range Submitted(from, def) {
		fmt.Fprintf(&b, "\n\t%s(%s) to queue %s", def.Name(), task.Describe(s.Args, 200), s.Queue)
		if s.Delay > 0 {
			fmt.Fprintf(&b, " with delay %v", s.Delay)
		}
	}
	for _, s := range from.submissions() {
		if s.envelope.Name != def.Name() {
			fmt.Fprintf(&b, "\n\t%s to queue %s", s.envelope.Name, s.queue)
		}
	}
	if b.Len() == 0 {
		return " none"
	}
	return b.String()
}

// Like accepts submissions with these arguments and with all that opts set: metadata, headers, id
// and correlation. A delay is compared with that of the submission, any other time with its date.
func Like[A any](args A, opts ...task.Option) func(*Submission[A]) bool {
	var want task.Call
	for _, o := range opts {
		o(&want)
	}
	made := time.Now()
	return func(s *Submission[A]) bool {
		e := s.Envelope
		for k, v := range want.Headers {
			if got, ok := e.Headers[k]; !ok || got != v {
				return false
			}
		}
		return (want.ID == "" || want.ID == e.ID) &&
			(want.Correlation == "" || want.Correlation == e.Correlation) &&
			hasMetadata(s, want.Meta, made) && equal(s, args)
	}
}

// hasMetadata reports whether s has all that want sets; made is when want was.
func hasMetadata[A any](s *Submission[A], want task.Metadata, made time.Time) bool {
	if queue, ok := want.Queue.Get(); ok && queue != s.Queue {
		return false
	}
	if at, ok := want.NotBefore.Get(); ok && !sameStart(s, at, made) {
		return false
	}
	if at, ok := want.Expires.Get(); ok {
		if got, _ := s.Envelope.Meta.Expires.Get(); !got.Equal(at.Truncate(time.Millisecond)) {
			return false
		}
	}
	want.Queue, want.NotBefore, want.Expires = task.Opt[string]{}, task.Opt[time.Time]{}, task.Opt[time.Time]{}
	both := s.Envelope.Meta
	both.Overlay(&want)
	return reflect.DeepEqual(both, s.Envelope.Meta)
}

// sameStart reports whether the earliest start of s is at, or as far away as at was from made: a
// bubble's times do not tell a delay from a date.
func sameStart[A any](s *Submission[A], at, made time.Time) bool {
	tolerance := time.Millisecond // that of the wire
	if _, isDelay := broker.FromNow(at); isDelay {
		tolerance = time.Second
	}
	return (s.Delay-at.Sub(made)).Abs() <= tolerance || s.At.Add(s.Delay).Sub(at).Abs() <= tolerance
}

// equal compares the arguments as they are after a journey: a serializer may lose a difference.
func equal[A any](s *Submission[A], args A) bool {
	if reflect.DeepEqual(s.Args, args) {
		return true
	}
	data, ct, err := s.codec.Marshal(s.Envelope.ContentType, args)
	var back A
	return err == nil && s.codec.BindArgs(ct, data, &back) == nil && reflect.DeepEqual(s.Args, back)
}
