package sqlevents

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// askEvery limits how long a publisher relies on its knowledge of the listeners.
	askEvery = 250 * time.Millisecond
	// settleTime is the time after which every publisher has asked again. It is longer than
	// askEvery, because the clocks of two machines may run at slightly different rates.
	settleTime = askEvery + 50*time.Millisecond
	// lease limits the time for which publishers write for a bus that ended without Close.
	lease = 30 * time.Second
)

// demand holds the types of events that the listeners of all processes want. It is immutable.
type demand struct {
	asked time.Time // just before the database was asked
	all   bool
	types []string
}

// fresh reports whether a publisher may still rely on d. A listener waits until no older demand can
// be in use, see settle.
func (d *demand) fresh() bool { return time.Since(d.asked) < askEvery }

// wants reports whether a listener wants events of this type.
func (d *demand) wants(typ string) bool { return d.all || slices.Contains(d.types, typ) }

// include adds types, a list in the stored form, to d. An empty text, and one that cannot be read,
// adds all types.
func (d *demand) include(types string) {
	var list []string
	if types == "" || json.Unmarshal([]byte(types), &list) != nil {
		d.all = true
	}
	d.types = append(d.types, list...)
}

// covers reports whether d includes every type of the list. An empty list means all types.
func (d *demand) covers(types []string) bool {
	if d.all || len(types) == 0 {
		return d.all
	}
	return !slices.ContainsFunc(types, func(typ string) bool { return !d.wants(typ) })
}

// demanded returns the types that listeners of all processes want. It uses the known demand if that
// is younger than askEvery; otherwise it asks the database and stores the answer in b.demand. It
// waits for the database and returns its errors.
func (b *Bus) demanded(ctx context.Context) (*demand, error) {
	if d := b.demand.Load(); d != nil && d.fresh() {
		return d, nil
	}
	d, _, err := b.ask(ctx)
	if err == nil {
		b.demand.Store(d)
	}
	return d, err
}

// ask reads the rows of all buses whose lease has not ended. all holds the types in these rows.
// settled holds only the types of rows that have not changed for settleTime, so that every
// publisher knows them. It waits for the database and returns its errors.
func (b *Bus) ask(ctx context.Context) (all, settled *demand, err error) {
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		all, settled = &demand{asked: time.Now()}, &demand{}
		rows, err := tx.Query(ctx, b.text.listeners, b.cfg.Namespace, settleTime.Microseconds())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
		for rows.Next() {
			var types string
			var old int
			if err := rows.Scan(&types, &old); err != nil {
				return err
			}
			all.include(types)
			if old == 1 {
				settled.include(types)
			}
		}
		return nil
	})
	return all, settled, err
}

// registration is the row of a bus among the listeners, as it was last written.
type registration struct {
	types string
	begun int64 // 0: not written
}

// register writes the row of this bus: the types that its listeners want, with a new lease. Without
// listeners it deletes the row. It logs a warning if the lease had ended, because publishers wrote
// nothing since. It waits for the database and returns its errors. It takes b.mu, but not while it
// waits.
func (b *Bus) register(ctx context.Context) error {
	select {
	case b.registering <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.registering }()
	types, wanted := b.wantedTypes()
	if err := b.ready(ctx); err != nil {
		return err
	}
	if !wanted {
		b.registered = registration{}
		return b.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			_, err := tx.Exec(ctx, b.text.unlisten, b.cfg.Namespace, b.id)
			return err
		})
	}
	now := registration{types: types}
	err := b.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, b.text.listen, b.cfg.Namespace, b.id, types, lease.Microseconds()).Scan(&now.begun)
	})
	if err != nil {
		return err
	}
	if was := b.registered; was.begun != 0 && was.types == now.types && was.begun != now.begun {
		b.cfg.Logger.WarnContext(ctx, "event listener was interrupted; events of that time are missing")
	}
	b.registered = now
	return nil
}

// wantedTypes returns the union of the types that the listeners of this bus want, in their stored
// form. It returns false if there is no listener. It takes b.mu.
func (b *Bus) wantedTypes() (types string, wanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []string
	for l := range b.listeners {
		if len(l.filter.Types) == 0 {
			return "", true
		}
		list = append(list, l.filter.Types...)
	}
	slices.Sort(list)
	text, _ := json.Marshal(slices.Compact(list)) // a list of texts has a form
	return string(text), len(list) > 0
}

// settle waits until every publisher knows that a listener wants these types. It returns at once if
// listeners have wanted them for settleTime. Call it after register. It waits for the database and
// returns its errors. Returns ctx's error if ctx ends, and the error of a closed Conn if the bus is
// closed.
func (b *Bus) settle(ctx context.Context, types []string) error {
	registered := time.Now()
	_, settled, err := b.ask(ctx)
	if err != nil || settled.covers(types) {
		return err
	}
	if !wake.SleepOr(ctx, b.life.Done(), settleTime-time.Since(registered)) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return sqlconn.Closed()
	}
	return nil
}
