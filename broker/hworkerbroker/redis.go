package hworkerbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// This file is the only part of the package that uses the connection. It runs scripts and adds the
// port's sentinels to errors. redisconn waits for a server that cannot be reached, and never sends
// a command twice that may have arrived.

// runScript runs a script and returns its answer. It waits for a connection until ctx ends or the
// Broker is closed: then it returns ErrUnavailable or ErrClosed. A script that may have been
// executed is not sent again; the error is ErrIndeterminate then. what names the operation in
// errors.
func (b *Broker) runScript(ctx context.Context, what string, script *redisconn.Script, keys []string, args ...any) (any, error) {
	if b.life.Err() != nil {
		return nil, fmt.Errorf("hworker %s: %w", what, broker.ErrClosed)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	answer, err := b.conn.Eval(ctx, script, keys, args...)
	if err != nil && b.life.Err() != nil && errors.Is(redisconn.Class(err), redisconn.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", redisconn.ErrClosed, err)
	}
	return answer, wrapErr(what, err)
}

// runInt runs a script like runScript, with its waits and errors, and returns its integer. An
// answer of another type counts as 0.
func (b *Broker) runInt(ctx context.Context, what string, script *redisconn.Script, keys []string, args ...any) (int, error) {
	answer, err := b.runScript(ctx, what, script, keys, args...)
	n, _ := answer.(int64)
	return int(n), err
}

// runTexts runs a script like runScript, with its waits and errors, and returns its list of
// strings. An element of another type counts as "", and another answer as an empty list.
func (b *Broker) runTexts(ctx context.Context, what string, script *redisconn.Script, keys []string, args ...any) ([]string, error) {
	answer, err := b.runScript(ctx, what, script, keys, args...)
	if err != nil {
		return nil, err
	}
	list, _ := answer.([]any)
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i], _ = v.(string)
	}
	return texts, nil
}

// wrapErr returns err with the operation what in its text and the sentinel of package broker that
// fits. The end of a ctx becomes ErrUnavailable. Any other error without a fitting sentinel, such
// as a key of a wrong type, becomes ErrUnsupported. It returns nil for a nil err.
func wrapErr(what string, err error) error {
	if err == nil {
		return nil
	}
	// the server refused the script: a key holds another type than the layout says
	class := broker.ErrUnsupported
	switch {
	case errors.Is(err, redisconn.ErrClosed):
		class = broker.ErrClosed
	case errors.Is(err, redisconn.ErrIndeterminate):
		class = broker.ErrIndeterminate
	case errors.Is(err, redisconn.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		class = broker.ErrUnavailable
	case errors.Is(err, redisconn.ErrBlocked):
		class = broker.ErrBlocked
	case errors.Is(err, redisconn.ErrAccess):
		class = broker.ErrAccess
	}
	return fmt.Errorf("hworker %s: %w: %w", what, class, err)
}

// permanent reports whether err is one that waiting does not remove: ErrAccess or ErrUnsupported.
func permanent(err error) bool {
	return errors.Is(err, broker.ErrAccess) || errors.Is(err, broker.ErrUnsupported)
}

// Watch implements [broker.Watcher]. It calls fn with the current state of the Broker's connection
// and at each change, one call at a time. The calls end when stop is called or the Broker is
// closed; a running one is completed. The errors have the sentinels of package broker. While a
// watcher exists, a goroutine checks the server about once a second.
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	return b.conn.Watch(func(s broker.ConnState, err error) {
		fn(s, wrapErr("watch", err))
	})
}
