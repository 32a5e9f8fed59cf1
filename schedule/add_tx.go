package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// readWait limits how long AddTx waits for the store's own connection. On SQLite the transaction of
// the caller may keep the store from making its tables.
const readWait = 2 * time.Second

// errNoTx refuses AddTx for stores that are in no database of the caller.
var errNoTx = fmt.Errorf("%w: this store cannot add entries in a transaction of the caller: use sqlschedule on the database of the transaction", ErrUnsupported)

// AddTx is [Schedule.Add] in a transaction of the caller, which packages tx/sqltx and tx/pgxtx
// convert. The entry exists if and only if the caller commits. AddTx neither commits nor rolls
// back.
//
// Listeners see the entry after the commit. An entry for [Now] or for a time that has passed by
// then runs at once. The store's clock and entries of older versions are read outside of t.
//
// Besides the errors of Add it returns [ErrUnsupported] if the store is not a [TxAdder], t belongs
// to another database, or with [WithName]. After an error that Add names as storing nothing, t can
// continue and commit. An error of the database may have ended t.
func (s *Schedule) AddTx(ctx context.Context, t tx.Tx, at When, call task.Call, opts ...Option) (Added, error) {
	if nameIn(opts) != "" {
		return Added{}, fmt.Errorf("%w: a transaction of the caller cannot change entries by name; use Add", ErrUnsupported)
	}
	store, ok := capability.As[TxAdder](s.c.Store)
	if !ok {
		return Added{}, errNoTx
	}
	read, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	entries, added, err := s.prepare(read, at, []task.Call{call}, opts)
	if err != nil {
		if read.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w; read the schedule once before the transaction begins, which on SQLite keeps others from writing", err)
		}
		return Added{}, err
	}
	added, err = noteNew(added, entries, func(es []Entry) ([]bool, error) { return store.AddTx(ctx, t, es) })
	if err != nil {
		return Added{}, err
	}
	return added[0], nil
}
