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

// Defaults and bounds of a [Client].
const (
	DefaultTimeout = 2 * time.Second
	MaxReplies     = 1000 // to one command; further ones are dropped
)

// ErrMissing is what Send returns, beside the replies that came, when fewer came than were asked for.
var ErrMissing = errors.New("control: not all nodes answered in time")

// ClientConfig configures a client. Only Bus must be set. The client does not close it.
type ClientConfig struct {
	// Bus is the one that the nodes listen to.
	Bus events.EventBus
	// Keys sign commands and check replies. nil: commands are not signed, and every reply is believed.
	Keys *Keys
	// NodeID names the sender to the nodes, which log it. "": made of host, process and chance.
	NodeID string
}

// Client sends commands. It is safe for concurrent use.
type Client struct {
	cfg     ClientConfig
	refused atomic.Uint64
}

// NewClient makes a client, or returns every problem of the configuration, joined. It does no I/O.
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

// Refused returns how many replies were not believed: not or wrongly signed, or unreadable.
func (c *Client) Refused() uint64 { return c.refused.Load() }

// Wait says for what Send waits. The zero value waits [DefaultTimeout] for any number of replies, or, where the command
// names nodes and no queues, no longer than till all of these have answered.
type Wait struct {
	// Replies is how many replies are enough; Send returns when they are there. 0: see above.
	Replies int
	// Timeout is how long to wait. 0: [DefaultTimeout], 2 s. A deadline of ctx counts too.
	Timeout time.Duration
}

// Send sends a command to all nodes and returns their replies, sorted by node. That a node had an error is in its Reply; that
// none answers is no error unless Wait or the command asks for a number, then it is [ErrMissing]. A command that is not
// possible wraps [ErrCommand]. Nothing is sent unless the replies can be heard; the bus may still lose commands and replies,
// as it may lose all events.
func (c *Client) Send(ctx context.Context, cmd Command, w Wait) ([]Reply, error) {
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	m, id, err := c.message(&cmd)
	if err != nil {
		return nil, err
	}
	if w.Timeout <= 0 {
		w.Timeout = DefaultTimeout
	}
	if w.Replies <= 0 && len(cmd.Queues) == 0 {
		w.Replies = len(cmd.Nodes)
	}
	sub, err := c.cfg.Bus.Subscribe(ctx, events.Filter{Types: []string{ReplyEvent}})
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		_ = sub.Close(closing) // the replies are here; what is left of the stream ends with the bus
	}()
	if err := c.cfg.Bus.Publish(ctx, m.event(c.cfg.NodeID)); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return c.collect(ctx, sub, id, w)
}

// message makes the signed message of a command, and its id.
func (c *Client) message(cmd *Command) (*message, string, error) {
	data, err := json.Marshal(cmd)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrCommand, err)
	}
	id := rand.Text()
	m, err := newMessage(CommandEvent, head{Version: version, ID: id, At: time.Now().UnixMilli(), From: c.cfg.NodeID}, string(data))
	if err != nil {
		return nil, "", err
	}
	c.cfg.Keys.sign(m)
	return m, id, nil
}

// collect gathers replies until there are enough or the time is over.
func (c *Client) collect(ctx context.Context, sub events.Subscription, id string, w Wait) ([]Reply, error) {
	waiting, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	var replies []Reply
	a := assembly{pending: make(map[string]*partial), done: make(map[string]bool)}
	var err error
	for w.Replies <= 0 || len(replies) < w.Replies {
		e, rerr := sub.Receive(waiting)
		if rerr != nil {
			if waiting.Err() == nil {
				err = fmt.Errorf("control: %w", rerr)
			} else if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("control: %w", context.Cause(ctx))
			}
			break
		}
		if r, ok := c.take(&e, id, &a); ok {
			replies = append(replies, r)
		}
	}
	slices.SortFunc(replies, func(a, b Reply) int { return cmp.Compare(a.Node, b.Node) })
	if err == nil && len(replies) < w.Replies {
		err = fmt.Errorf("%w: %d of %d", ErrMissing, len(replies), w.Replies)
	}
	return replies, err
}

// take reads an event; ok when it completes a reply to the command of this id.
func (c *Client) take(e *events.Event, id string, a *assembly) (r Reply, ok bool) {
	m, err := readMessage(e)
	if err != nil {
		c.refused.Add(1)
		return r, false
	}
	h, err := m.readHead()
	if err == nil && h.ID != id {
		return r, false // to another command; whether it is genuine is not our affair
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
