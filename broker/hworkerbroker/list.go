package hworkerbroker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// Queues implements [broker.QueueLister]. A queue is known while it has jobs: waiting, in progress,
// broken or failed. Queues of other programs on the server are among them. It reads the names of
// all keys of the database, so its time grows with their number. It waits for the server. Returns
// ErrUnavailable if ctx ends first, ErrClosed after Close, and other errors of the server.
func (b *Broker) Queues(ctx context.Context) ([]string, error) {
	if b.life.Err() != nil {
		return nil, fmt.Errorf("hworker queues: %w", broker.ErrClosed)
	}
	all, err := b.conn.Keys(ctx, "hworker-*")
	if err != nil {
		return nil, wrapErr("queues", err)
	}
	var names []string
	for _, key := range all {
		for _, prefix := range []string{"hworker-jobs-", "hworker-progress-", "hworker-broken-", "hworker-failed-"} {
			if name, ok := strings.CutPrefix(key, prefix); ok && naming.ValidName(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// List implements [broker.Lister]. Jobs that wait have no time, and none is delayed. For jobs in
// progress and dead letters it reads all of them. A job that cannot be read is shown as its
// payload. It waits for the server. Returns ErrMalformed for a name, place or cursor that is not
// valid, and the errors of Stats.
func (b *Broker) List(ctx context.Context, queue string, lq broker.ListQuery) (broker.Page, error) {
	lq, err := lq.Check()
	if err != nil {
		return broker.Page{}, err
	}
	k, err := keysOf(queue)
	if err != nil {
		return broker.Page{}, err
	}
	if lq.Place == broker.PlaceDead {
		return broker.PageDead(ctx, b, queue, lq)
	}
	skip, err := broker.Offset(lq.Cursor)
	if err != nil {
		return broker.Page{}, err
	}
	var all []broker.Listed
	switch lq.Place {
	case broker.PlaceWaiting: // the right end is next
		payloads, err := b.runTexts(ctx, "list", b.scripts.show, k.all(), "jobs", -skip-lq.Limit-1, -skip-1)
		if err != nil {
			return broker.Page{}, err
		}
		for _, payload := range slices.Backward(payloads) {
			all = append(all, broker.Listed{Message: shown(payload)})
		}
	case broker.PlaceHeld:
		held, err := b.Progress(ctx, queue)
		if err != nil {
			return broker.Page{}, err
		}
		for _, n := range held[min(skip, len(held)):] {
			l := broker.Listed{Message: shown(n.Payload)}
			if !n.At.IsZero() {
				l.At = n.At.Add(b.cfg.Timeout)
			}
			all = append(all, l)
		}
	}
	p := broker.Page{Messages: all[:min(lq.Limit, len(all))]}
	if len(all) > lq.Limit {
		p.Next = strconv.Itoa(skip + lq.Limit)
	}
	return p, nil
}

// shown returns the message in a payload, as lists and scans show it. A payload that cannot be read
// becomes the body of a message without an id.
func shown(payload string) *broker.Message {
	m, err := decode(payload)
	if err != nil {
		return &broker.Message{ContentType: contentPayload, Priority: defaultPriority, Body: []byte(payload)}
	}
	return m
}
