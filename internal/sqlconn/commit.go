package sqlconn

import (
	"context"
	"errors"
)

// commit runs the functions of a group in one transaction and commits it. Each turn is ended exactly once.
func (g *group) commit(batch []*turn) {
	batch, err := g.begin(batch)
	if err != nil {
		for _, t := range batch {
			t.end(err)
		}
		return
	}
	if len(batch) == 0 {
		return
	}
	if len(batch) == 1 {
		g.alone(batch[0])
		return
	}
	ran, lost := g.runAll(batch)
	if !lost {
		lost = !g.finish(ran)
	}
	if lost {
		g.rollback()
		for _, t := range ran {
			g.again(t)
		}
	}
}

// begin starts the transaction, which waits for other processes. It returns the turns whose callers are still there; when
// there are none, no transaction has begun.
func (g *group) begin(batch []*turn) ([]*turn, error) {
	for {
		waiting := batch[:0]
		for _, t := range batch {
			if t.gone() {
				t.end(nil)
			} else {
				waiting = append(waiting, t)
			}
		}
		batch = waiting
		if len(batch) == 0 {
			return nil, nil
		}
		err := g.ready()
		if err == nil {
			_, err = g.conn.exec(context.Background(), "BEGIN IMMEDIATE", nil)
		}
		if err == nil {
			return batch, nil
		}
		if !isBusy(err) {
			return batch, classify(err)
		}
	}
}

// alone commits one turn, whose failure concerns nobody else.
func (g *group) alone(t *turn) {
	tx := &Tx{dialect: SQLite, link: g.conn}
	there, err := t.call(tx)
	g.conn.closeRows()
	if there && err == nil {
		_, err = g.conn.exec(context.Background(), "COMMIT", nil)
		if err = commitError(err); err == nil {
			t.end(nil)
			return
		}
	}
	g.rollback()
	t.end(err)
}

// again commits a turn on its own, after its group has failed.
func (g *group) again(t *turn) {
	batch, err := g.begin([]*turn{t})
	switch {
	case err != nil:
		t.end(err)
	case len(batch) == 1:
		g.alone(t)
	}
}

// runAll runs the functions of a group, each between savepoints, and ends the turns that failed by themselves. It returns
// the others, and whether the transaction was lost on the way.
func (g *group) runAll(batch []*turn) (ran []*turn, lost bool) {
	for i, t := range batch {
		ok, err := g.runOne(t)
		switch {
		case err != nil: // the savepoint is gone, and so is the transaction
			return append(append(ran, t), batch[i+1:]...), true
		case ok:
			ran = append(ran, t)
		}
	}
	return ran, false
}

// runOne runs one function. It reports whether its changes belong to the commit; if not, the turn has ended, except when the
// transaction was lost.
func (g *group) runOne(t *turn) (bool, error) {
	ctx := context.Background()
	if _, err := g.conn.exec(ctx, "SAVEPOINT turn", nil); err != nil {
		return false, err
	}
	there, failed := t.call(&Tx{dialect: SQLite, link: g.conn})
	g.conn.closeRows()
	if there && failed == nil {
		if _, err := g.conn.exec(ctx, "RELEASE turn", nil); err != nil {
			return false, err
		}
		return true, nil
	}
	// Some errors, as a full disk, make SQLite roll back everything. Then there is no savepoint either.
	if _, err := g.conn.exec(ctx, "ROLLBACK TO turn", nil); err != nil {
		return false, err
	}
	if _, err := g.conn.exec(ctx, "RELEASE turn", nil); err != nil {
		return false, err
	}
	t.end(failed)
	return false, nil
}

// finish commits a group, and reports whether that ended its turns.
func (g *group) finish(ran []*turn) bool {
	_, err := g.conn.exec(context.Background(), "COMMIT", nil)
	err = commitError(err)
	if err != nil && !errors.Is(err, ErrIndeterminate) {
		return false // each for itself: a deferred constraint concerns one of them
	}
	if err != nil {
		g.rollback()
	}
	for _, t := range ran {
		t.end(err)
	}
	return true
}

// commitError is the error of a commit. When the disk fails in the middle of it, what was written may be found later.
func commitError(err error) error {
	if err = classify(err); errors.Is(err, ErrUnavailable) && !isBusy(err) {
		return &failure{ErrIndeterminate, err}
	}
	return err
}

// rollback ends a transaction, if there is one.
func (g *group) rollback() {
	g.conn.closeRows()
	_, _ = g.conn.exec(context.Background(), "ROLLBACK", nil) // it fails if SQLite has rolled back by itself
}
