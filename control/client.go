package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults and limits of a [Client].
const (
	DefaultTimeout = 2 * time.Second
	MaxReplies     = 1000 // to one command; further replies are dropped
)

// ErrMissing is returned by Send, together with the received replies, if fewer nodes replied than
// required.
var ErrMissing = errors.New("control: not all nodes answered in time")

// ClientConfig configures a [Client]. Only Bus must be set. The client does not close the buses.
type ClientConfig struct {
	// Bus is the event bus that the nodes listen to.
	Bus events.EventBus
	// Replies is the same bus as [Config].Replies of the nodes. The client listens to both buses,
	// since nodes without Replies use Bus. nil: all nodes reply on Bus. They do so for a minute, too,
	// after a subscription to Replies has failed or taken a second longer than that to Bus.
	Replies events.EventBus
	// Keys sign commands and verify replies. nil: commands are not signed, and all replies are
	// accepted.
	Keys *Keys
	// NodeID is the sender's name in the logs of the nodes. Default: made of the host name, the
	// process id and random characters.
	NodeID string
}

// Client sends commands to nodes. Make one with [NewClient]. Safe for concurrent use.
type Client struct {
	cfg     ClientConfig
	refused atomic.Uint64
	failed  atomic.Pointer[time.Time] // when subscribing to Replies last failed; nil: never
}

// withoutReplies is the time after a failed subscription for which a client does not try Replies.
const withoutReplies = time.Minute

// listen subscribes to the replies to a command.
func (c *Client) listen(ctx context.Context) (l *listener, both bool, err error) {
	second := c.cfg.Replies
	if at := c.failed.Load(); at != nil && time.Since(*at) < withoutReplies {
		second = nil
	}
	l, both, err = listen(ctx, c.cfg.Bus, second)
	if err == nil && second != nil && !both && ctx.Err() == nil {
		now := time.Now()
		c.failed.Store(&now)
	}
	return l, both, err
}

// NewClient returns a Client. It does no I/O. It copies the keys. Its error joins all problems of
// the configuration: Bus is nil, NodeID is not a valid name, or the keys are invalid.
func NewClient(c ClientConfig) (*Client, error) {
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("config: Bus is not set"))
	}
	if c.NodeID == "" {
		c.NodeID = nodeid.New()
	} else if err := task.CheckName(c.NodeID); err != nil {
		errs = append(errs, fmt.Errorf("config: NodeID: %w", err))
	}
	keys, err := c.Keys.complete()
	c.Keys = keys
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return &Client{cfg: c}, nil
}

// Refused returns the number of replies that were not accepted: without a valid signature, or
// unreadable.
func (c *Client) Refused() uint64 { return c.refused.Load() }

// Wait configures how long Send waits. The zero value waits [DefaultTimeout] for any number of
// replies. If the command names nodes and no queues, it waits only until all these nodes have
// replied.
type Wait struct {
	// Replies is the number of replies after which Send returns. 0: see above.
	Replies int
	// Timeout limits the wait. The deadline of ctx limits it too. Default: [DefaultTimeout], 2 s.
	Timeout time.Duration
}

// Send sends a command to all nodes and returns their replies, sorted by node. It blocks until it
// has enough replies, or w.Timeout or the deadline of ctx has passed. Errors of a node are in its
// Reply. It subscribes to replies first. It sends nothing if that fails on Bus, or if ctx ends
// before it.
//
// Returns [ErrCommand] without sending if the command is invalid. Returns [ErrMissing] with the
// received replies if Wait or the command requires a number of replies and fewer arrive. If no
// number is required, it returns the received replies without an error.
//
// If ctx is canceled, it returns the cause with the received replies. Other errors come from the
// bus, which may also lose commands and replies.
func (c *Client) Send(ctx context.Context, cmd Command, w Wait) ([]Reply, error) {
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	if w.Timeout <= 0 {
		w.Timeout = DefaultTimeout
	}
	if w.Replies <= 0 && len(cmd.Queues) == 0 {
		w.Replies = len(cmd.Nodes)
	}
	l, both, err := c.listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	defer l.close(ctx)
	m, id, err := c.message(&cmd, both)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // a bus sends also if ctx has ended
		return nil, fmt.Errorf("control: %w", context.Cause(ctx))
	}
	if err := c.cfg.Bus.Publish(ctx, m.event(c.cfg.NodeID)); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return c.collect(ctx, l, id, w)
}

// message returns the signed message of a command, and the command's new random id. replies tells
// the nodes that the client listens to the bus for replies. Returns [ErrCommand] if the command is
// too large.
func (c *Client) message(cmd *Command, replies bool) (*message, string, error) {
	data, err := json.Marshal(cmd)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrCommand, err)
	}
	id := rand.Text()
	m, err := newMessage(CommandEvent, head{
		Version: version, ID: id, At: time.Now().UnixMilli(), From: c.cfg.NodeID, Replies: replies,
	}, string(data))
	if err != nil {
		return nil, "", err
	}
	c.cfg.Keys.sign(m)
	return m, id, nil
}

// collect receives replies to the command id until there are w.Replies of them (0: no limit), or
// until w.Timeout or the deadline of ctx has passed. It returns the replies sorted by node,
// together with the error.
//
// The error is [ErrMissing] if fewer than w.Replies came, the cause if ctx was canceled, or the
// error of the bus.
func (c *Client) collect(ctx context.Context, l *listener, id string, w Wait) ([]Reply, error) {
	waiting, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	var replies []Reply
	a := assembly{pending: make(map[string]*partial), done: make(map[string]bool)}
	var err error
	results := l.receive(waiting)
	for w.Replies <= 0 || len(replies) < w.Replies {
		r, more := <-results
		if !more { // waiting has ended
			if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("control: %w", context.Cause(ctx))
			}
			break
		}
		if r.err != nil {
			err = fmt.Errorf("control: %w", r.err)
			break
		}
		if reply, ok := c.take(&r.event, id, &a); ok {
			replies = append(replies, reply)
		}
	}
	slices.SortFunc(replies, func(a, b Reply) int { return cmp.Compare(a.Node, b.Node) })
	if err == nil && len(replies) < w.Replies {
		err = fmt.Errorf("%w: %d of %d", ErrMissing, len(replies), w.Replies)
	}
	return replies, err
}

// take reads an event. It returns ok and the reply if the event completes a reply to the command
// with this id. It stores other parts of such a reply in a. It ignores replies to other commands.
// It counts unreadable events and bad signatures as refused.
func (c *Client) take(e *events.Event, id string, a *assembly) (r Reply, ok bool) {
	m, err := readMessage(e)
	if err != nil {
		c.refused.Add(1)
		return r, false
	}
	h, err := m.readHead()
	if err == nil && h.ID != id {
		return r, false // a reply to another command
	}
	if err == nil {
		err = c.cfg.Keys.verify(m)
	}
	if err != nil {
		c.refused.Add(1)
		return r, false
	}
	whole, complete := a.add(&h, m.data)
	if !complete {
		return r, false
	}
	if r, err = parseReply([]byte(whole), h.From); err != nil {
		c.refused.Add(1)
		return r, false
	}
	return r, true
}
