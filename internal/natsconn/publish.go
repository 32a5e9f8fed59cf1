package natsconn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// window is the number of messages of a Conn that may wait for their acknowledgement at the same
// time. A server refuses messages when more than 10,000 wait for one stream.
const window = 4000

// Ack is a stream's answer to a message.
type Ack struct {
	Stream    string // empty if fastAck decoded the answer
	Sequence  uint64
	Duplicate bool // a message with this Nats-Msg-Id was stored before, under Sequence
}

// Pub is a message to publish, with its outcome.
type Pub struct {
	Msg *nats.Msg // its Reply is not used
	Ack Ack       // of a stored message
	Err error     // nil: stored

	token uint64
}

// publisher holds the messages that wait for an answer. All answers arrive in one inbox.
type publisher struct {
	prefix string // of the subjects of answers

	inbox sync.Mutex // guards making sub; locked before the client library's lock, while mu never is
	sub   atomic.Pointer[nats.Subscription]

	mu      sync.Mutex
	next    uint64
	pending map[uint64]waiting
	free    chan struct{} // non-nil while a call waits for space in the window
}

// waiting is a message without an answer.
type waiting struct {
	pub   *Pub
	batch *batch
}

// batch is one call of PublishBatch. Its fields are guarded by publisher.mu.
type batch struct {
	left  int // messages without an outcome, plus one while the batch is being sent
	ended chan struct{}
}

// init makes the map of pending messages and the random prefix of the inbox. Call it once before
// use.
func (p *publisher) init() {
	p.prefix = nats.NewInbox() + "."
	p.pending = make(map[uint64]waiting)
}

// Publish publishes m to a stream and waits for its acknowledgement. nil means that the stream has
// stored the message, possibly before (Ack.Duplicate). Concurrent calls share round trips.
//
// Without a connection it waits until ctx ends and returns [ErrUnavailable]. If the message may
// have been sent and no answer arrives, it returns [ErrIndeterminate] and never sends it again.
// Other errors are [ErrNoStream], [ErrTooLarge], [ErrBlocked], [ErrWrongSequence], [ErrAccess],
// [ErrClosed], and errors of the server without a class.
func (c *Conn) Publish(ctx context.Context, m *nats.Msg) (Ack, error) {
	ps := [1]Pub{{Msg: m}}
	c.PublishBatch(ctx, ps[:])
	return ps[0].Ack, ps[0].Err
}

// PublishBatch publishes each message like Publish and waits for all answers. It sends the messages
// in this order while the connection lasts, and sets Ack and Err of each. When ctx ends, messages
// without an answer get [ErrIndeterminate]. It takes c.pubs.mu, but does not hold it while it
// waits.
func (c *Conn) PublishBatch(ctx context.Context, ps []Pub) {
	b := &batch{left: 1, ended: make(chan struct{})}
	for i := range ps {
		if err := c.send(ctx, &ps[i], b); err != nil {
			ps[i].Err = err
		}
	}
	p := &c.pubs
	p.mu.Lock()
	p.done(b)
	p.mu.Unlock()
	select {
	case <-b.ended:
		return
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range ps {
		if w, ok := p.pending[ps[i].token]; ok && w.pub == &ps[i] {
			p.finish(ps[i].token, w, Ack{}, fmt.Errorf("%w: %w", ErrIndeterminate, context.Cause(ctx)))
		}
	}
}

// send registers and writes one message of batch b. It waits for a session, for space in the write
// buffer and in the window, until ctx ends. After a lost connection it tries again with the next
// session if the message was certainly not sent. After an error the message was not sent and is not
// registered. After nil, the outcome is set by another goroutine, or by send if the session has
// ended.
func (c *Conn) send(ctx context.Context, pub *Pub, b *batch) error {
	for {
		s, err := c.Session(ctx)
		if err != nil {
			return err
		}
		if err := s.WaitRoom(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
		if err := c.pubs.subscribe(s.NATS); err != nil {
			return err
		}
		if err := c.pubs.register(ctx, pub, b); err != nil {
			return err
		}
		out := nats.Msg{Subject: pub.Msg.Subject, Reply: c.pubs.reply(pub.token), Header: pub.Msg.Header, Data: pub.Msg.Data}
		err = s.NATS.PublishMsg(&out)
		if err == nil {
			select {
			case <-s.done: // perhaps lost before the message was registered, so that fail did not see it
				c.pubs.failLost(pub, s.err)
			default:
			}
			return nil
		}
		c.pubs.unregister(pub)
		if !isAny(err, nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed) && !s.sock.Over() {
			return Classify(err)
		}
		// The end of this session will be known soon.
		select {
		case <-s.done:
		case <-ctx.Done():
			return c.unavailable(ctx, err)
		}
	}
}

// reply returns the subject for the answer to a message: the prefix of the inbox and the token in
// base 36.
func (p *publisher) reply(token uint64) string {
	buf := make([]byte, 0, len(p.prefix)+13)
	buf = append(buf, p.prefix...)
	return string(strconv.AppendUint(buf, token, 36))
}

// subscribe opens the inbox for answers at its first call. Returns ErrUnavailable if that fails. It
// takes p.inbox.
func (p *publisher) subscribe(nc *nats.Conn) error {
	if p.sub.Load() != nil {
		return nil
	}
	p.inbox.Lock()
	defer p.inbox.Unlock()
	if p.sub.Load() != nil {
		return nil
	}
	sub, err := nc.Subscribe(p.prefix+"*", p.answer)
	if err == nil {
		err = sub.SetPendingLimits(-1, -1) // the window limits them
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	p.sub.Store(sub)
	return nil
}

// register gives pub a token, adds it to the pending messages and counts it in b. Before that it
// waits for space in the window. Returns ErrUnavailable if ctx ends first; then nothing was added.
// It takes p.mu, but does not hold it while it waits.
func (p *publisher) register(ctx context.Context, pub *Pub, b *batch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.pending) >= window {
		if p.free == nil {
			p.free = make(chan struct{})
		}
		free := p.free
		p.mu.Unlock()
		select {
		case <-free:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
	p.next++
	pub.token, pub.Err = p.next, nil
	p.pending[pub.token] = waiting{pub, b}
	b.left++
	return nil
}

// unregister removes a pending message that was not sent, without an error. It does nothing if the
// message has an outcome already. It takes p.mu.
func (p *publisher) unregister(pub *Pub) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.pending[pub.token]; ok {
		p.finish(pub.token, w, Ack{}, nil)
	}
}

// failLost ends a pending message whose session was lost with ErrIndeterminate, unless it has an
// outcome. It takes p.mu.
func (p *publisher) failLost(pub *Pub, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.pending[pub.token]; ok {
		p.finish(pub.token, w, Ack{}, fmt.Errorf("%w: %w", ErrIndeterminate, cause))
	}
}

// finish sets the outcome of a message, removes it from the pending ones and counts down its batch.
// When a quarter of the window is free, it wakes the calls of register that wait. Call it with p.mu
// held.
func (p *publisher) finish(token uint64, w waiting, ack Ack, err error) {
	delete(p.pending, token)
	w.pub.Ack, w.pub.Err = ack, err
	p.done(w.batch)
	if p.free != nil && len(p.pending) < window*3/4 {
		close(p.free)
		p.free = nil
	}
}

// done counts down b.left and closes b.ended at 0. Call it with p.mu held.
func (p *publisher) done(b *batch) {
	if b.left--; b.left == 0 {
		close(b.ended)
	}
}

// answer sets the outcome of the pending message that m answers. It ignores answers to messages
// that are not pending. The client library calls it. It takes p.mu.
func (p *publisher) answer(m *nats.Msg) {
	if len(m.Subject) <= len(p.prefix) {
		return
	}
	token, err := strconv.ParseUint(m.Subject[len(p.prefix):], 36, 64)
	if err != nil {
		return
	}
	ack, err := ParseAck(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.pending[token]; ok {
		p.finish(token, w, ack, err)
	}
}

// fail ends all pending messages with ErrIndeterminate and err, because their answers are lost with
// the connection. That ends their calls of PublishBatch. It takes p.mu.
func (p *publisher) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for token, w := range p.pending {
		p.finish(token, w, Ack{}, fmt.Errorf("%w: %w", ErrIndeterminate, err))
	}
}

// refuse ends all pending messages of a subject to which the server refuses publishing, with err.
// It takes p.mu.
func (p *publisher) refuse(subject string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for token, w := range p.pending {
		if w.pub.Msg.Subject == subject {
			p.finish(token, w, Ack{}, err)
		}
	}
}

// errAnswer reports an answer that is not one of JetStream.
var errAnswer = errors.New("the answer is not one of JetStream")

// ParseAck decodes a stream's answer to a message. An error answer is returned with its class, if
// it has one. Returns ErrNoStream if no stream accepts the subject, errAnswer for any other text.
func ParseAck(m *nats.Msg) (Ack, error) {
	if seq, ok := fastAck(m.Data); ok {
		return Ack{Sequence: seq}, nil
	}
	if len(m.Data) == 0 {
		if m.Header.Get("Status") == "503" {
			return Ack{}, fmt.Errorf("%w: %w", ErrNoStream, nats.ErrNoResponders)
		}
		return Ack{}, errAnswer
	}
	var a struct {
		Error     *jetstream.APIError `json:"error"`
		Stream    string              `json:"stream"`
		Seq       uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return Ack{}, errAnswer
	}
	switch {
	case a.Error != nil:
		return Ack{}, Classify(fmt.Errorf("the stream: %w", a.Error))
	case a.Stream == "":
		return Ack{}, errAnswer
	}
	return Ack{Stream: a.Stream, Sequence: a.Seq, Duplicate: a.Duplicate}, nil
}

// fastAck decodes {"stream":"S","seq":N}, also with a space after the comma. Almost every answer
// has this form. It returns false for any other form.
func fastAck(data []byte) (uint64, bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return 0, false
	}
	i := bytes.IndexByte(rest, '"')
	if i < 0 {
		return 0, false
	}
	rest = bytes.TrimPrefix(rest[i+1:], []byte(","))
	rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, " "), []byte(`"seq":`))
	if !ok || len(rest) < 2 || rest[len(rest)-1] != '}' {
		return 0, false
	}
	var n uint64
	for _, ch := range rest[:len(rest)-1] {
		if ch < '0' || ch > '9' || n > (1<<63)/10 {
			return 0, false
		}
		n = n*10 + uint64(ch-'0')
	}
	return n, true
}
