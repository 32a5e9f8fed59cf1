package hworkerbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
)

// This file is all the rest of the package knows of the connection: it runs scripts, and its errors have the classes of
// package broker. Waiting for a server that is away, and never sending twice what may have arrived, is redisconn's.

// run runs a script; what is the word for it in errors. Close of the Broker ends it.
func (b *Broker) run(ctx context.Context, what string, script *redisconn.Script, keys []string, args ...any) (any, error) {
	if b.life.Err() != nil {
		return nil, fmt.Errorf("hworker %s: %w", what, broker.ErrClosed)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	answer, err := b.conn.Eval(ctx, script, keys, args...)
	if err != nil && b.life.Err() != nil && redisconn.Class(err) == redisconn.ErrUnavailable { //nolint:errorlint // a class
		err = fmt.Errorf("%w: %w", redisconn.ErrClosed, err)
	}
	return answer, failure(what, err)
}

// number is run for scripts that return one.
func (b *Broker) number(ctx context.Context, what string, script *redisconn.Script, keys []string, args ...any) (int, error) {
	answer, err := b.run(ctx, what, script, keys, args...)
	n, _ := answer.(int64)
	return int(n), err
}

// texts is run for scripts that return a list of texts.
func (b *Broker) texts(ctx context.Context, what string, script *redisconn.Script, keys []string, args ...any) ([]string, error) {
	answer, err := b.run(ctx, what, script, keys, args...)
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

// failure gives an error of the connection its class of the port.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	class := broker.ErrUnsupported // the server refused the script: a key holds something else than the layout says
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

// permanent reports whether waiting does not mend err.
func permanent(err error) bool {
	return errors.Is(err, broker.ErrAccess) || errors.Is(err, broker.ErrUnsupported)
}

// Watch implements [broker.Watcher].
func (b *Broker) Watch(fn func(s broker.ConnState, err error)) (stop func()) {
	return b.conn.Watch(func(s broker.ConnState, err error) {
		fn(s, failure("watch", err))
	})
}
