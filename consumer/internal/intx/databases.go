package intx

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/tx"
)

// Part is a Broker or a store with its name in errors.
type Part struct {
	Name  string
	Value any
}

// Databases remembers which stores are in the database of the Broker. The zero value is ready for
// use. Safe for concurrent use.
type Databases struct{ same sync.Map } // the stores as keys

// Check returns an error if t is not a transaction of the database of b and all stores. It writes
// nothing. A store that was once found in the database of b is not asked again, and without other
// stores neither is b: later the writes themselves check t.
//
// Returns [broker.ErrUnsupported] for another database, and errors of the database.
func (d *Databases) Check(ctx context.Context, t tx.Tx, b Part, stores ...Part) error {
	asked := false
	for _, store := range stores {
		key := reflect.TypeOf(store.Value).Comparable()
		if key {
			if _, known := d.same.Load(store.Value); known {
				continue
			}
		}
		if !asked {
			if err := check(ctx, t, b); err != nil {
				return err
			}
			asked = true
		}
		if err := check(ctx, t, store); err != nil {
			return err
		}
		if key {
			d.same.Store(store.Value, true)
		}
	}
	return nil
}

// check returns nil if t is a transaction of the database of p. Returns [broker.ErrUnsupported] if
// p is not in that database or in none, and errors of the database.
func check(ctx context.Context, t tx.Tx, p Part) error {
	c, ok := capability.As[tx.Checker](p.Value)
	if !ok {
		return fmt.Errorf("%w: SettleTx: the %s is in no SQL database", broker.ErrUnsupported, p.Name)
	}
	return unsupported(p.Name, c.CheckTx(ctx, t))
}

// unsupported adds the name of the part to err, and [broker.ErrUnsupported] to that of a store.
func unsupported(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, resultstore.ErrUnsupported):
		return fmt.Errorf("%w: SettleTx: the %s: %w", broker.ErrUnsupported, name, err)
	}
	return fmt.Errorf("swarmiji: SettleTx: the %s: %w", name, err)
}
