package jobstest

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Again wraps a store so that each function of Update and Single runs twice, first in a transaction
// that is rolled back. The port allows this. Tests thus find functions that only work once.
func Again(s jobs.Store) jobs.Store { return again{s} }

// again is the store that Again returns.
type again struct{ jobs.Store }

// errVain rolls the first run back.
var errVain = errors.New("jobstest: in vain")

// twice calls run with fn in a transaction that is rolled back, and then with fn itself. Returns
// the error of fn or of the first transaction, if there is one, else the result of the second.
func twice(ctx context.Context, run func(context.Context, txFunc) error, fn txFunc) error {
	err := run(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return errVain
	})
	if err != nil && !errors.Is(err, errVain) {
		return err
	}
	return run(ctx, fn)
}

// Update runs fn twice, as Again says. It implements [jobstore.Store].
func (a again) Update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return twice(ctx, a.Store.Update, fn)
}

// Single runs fn twice, as Again says. It implements [jobstore.Store].
func (a again) Single(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return twice(ctx, a.Store.Single, fn)
}

// Bare wraps a store so that its transactions implement only the required methods: they are not
// [jobstore.Taker], [jobstore.Dropper] or [jobstore.Weigher].
func Bare(s jobs.Store) jobs.Store { return bare{s} }

// bare is the store that Bare returns.
type bare struct{ jobs.Store }

// Update runs fn with a transaction that has only the required methods. It implements
// [jobstore.Store].
func (b bare) Update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return b.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return fn(ctx, bareTx{tx, tx, tx, tx}) })
}

// Single runs fn with a transaction that has only the required methods. It implements
// [jobstore.Store].
func (b bare) Single(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return b.Store.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error { return fn(ctx, bareTx{tx, tx, tx, tx}) })
}

// bareTx is a transaction with only the required methods of the port. Each calls the same method of
// tx.
type bareTx struct {
	jobstore.AnswerTx
	jobstore.LeaseTx
	jobstore.Finder
	tx jobstore.Tx
}

// Now returns the store's time. It implements [jobstore.Tx].
func (b bareTx) Now(ctx context.Context) (time.Time, error)      { return b.tx.Now(ctx) }
func (b bareTx) Lock(ctx context.Context, names ...string) error { return b.tx.Lock(ctx, names...) }

// Save writes jobs. It implements [jobstore.Tx].
func (b bareTx) Save(ctx context.Context, list ...*jobs.Row) error { return b.tx.Save(ctx, list...) }

// Delete deletes jobs. It implements [jobstore.Tx].
func (b bareTx) Delete(ctx context.Context, ids ...jobs.ID) error { return b.tx.Delete(ctx, ids...) }

// ExpireJobs deletes expired jobs and returns their number. It implements [jobstore.Tx].
func (b bareTx) ExpireJobs(ctx context.Context, by time.Time, limit int) (int, error) {
	return b.tx.ExpireJobs(ctx, by, limit)
}
