package sqlconn

import (
	"context"
	"errors"
	"slices"
	"time"
)

// commit runs the functions of a batch in one transaction and commits it. It returns the turns that
// did not begin within batchTime, and ends the others exactly once. If the shared transaction
// fails, it rolls back and commits each turn that began separately: their functions run again.
//
// It blocks for the disk, for locks of other processes and for the functions. Call it on the
// committing goroutine.
func (g *group) commit(batch []*turn) (rest []*turn) {
	batch, err := g.begin(batch)
	if err != nil {
		for _, t := range batch {
			t.end(err)
		}
		return nil
	}
	if len(batch) == 0 {
		return nil
	}
	if len(batch) == 1 {
		g.alone(batch[0])
		return nil
	}
	ran, rest, lost := g.runAll(batch)
	if !lost {
		lost = !g.finish(ran)
	}
	if lost {
		g.rollback()
		for _, t := range ran {
			g.again(t)
		}
	}
	return rest
}

// begin starts a transaction and waits while another process has the file locked, without a limit.
// It returns the turns whose callers still wait, and ends the others. Without such a turn it starts
// no transaction. If the connection or the transaction cannot be opened, it returns that error with
// the turns, which the caller must end.
func (g *group) begin(batch []*turn) ([]*turn, error) {
	for {
		waiting := batch[:0]
		for _, t := range batch {
			if t.hasLeft() {
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
			err = g.lite.checkPlace()
		}
		if err == nil {
			err = g.conn.relax(!slices.ContainsFunc(batch, func(t *turn) bool { return !t.relaxed }))
		}
		if err == nil {
			_, err = g.conn.Exec(context.Background(), "BEGIN IMMEDIATE", nil)
		}
		if err == nil {
			return batch, nil
		}
		if !isBusy(err) {
			return batch, Classify(err)
		}
	}
}

// alone runs the function of one turn in the open transaction and commits. It ends the turn with
// the error of the function or of the commit. After an error, and if the caller has left, it rolls
// back.
func (g *group) alone(t *turn) {
	tx := &Tx{dialect: SQLite, link: g.conn}
	there, err := t.call(tx)
	g.conn.closeRows()
	if there && err == nil {
		_, err = g.conn.Exec(context.Background(), "COMMIT", nil)
		if err = commitError(err); err == nil {
			t.end(nil)
			return
		}
	}
	g.rollback()
	t.end(err)
}

// again runs one turn in its own transaction, after its batch has failed, and ends the turn with
// the result. It runs nothing if the caller has left.
func (g *group) again(t *turn) {
	batch, err := g.begin([]*turn{t})
	switch {
	case err != nil:
		t.end(err)
	case len(batch) == 1:
		g.alone(t)
	}
}

// runAll runs the functions of a batch, each inside a savepoint, until all have run or batchTime
// has passed. It ends the turns whose functions failed, and returns the others: those that ran, and
// the rest. lost reports that SQLite has rolled back the whole transaction.
func (g *group) runAll(batch []*turn) (ran, rest []*turn, lost bool) {
	begun := time.Now()
	for i, t := range batch {
		if i > 0 && time.Since(begun) > batchTime {
			return ran, batch[i:], false
		}
		ok, err := g.runOne(t)
		if ok || err != nil {
			ran = append(ran, t)
		}
		if err != nil { // the savepoint is lost, and so is the transaction
			return ran, batch[i+1:], true
		}
	}
	return ran, nil, false
}

// runOne runs the function of one turn inside a savepoint. It reports whether the changes are part
// of the transaction. If not, it ends the turn. It returns an error, without ending the turn, if
// the transaction is lost.
func (g *group) runOne(t *turn) (bool, error) {
	ctx := context.Background()
	if _, err := g.conn.Exec(ctx, "SAVEPOINT turn", nil); err != nil {
		return false, err
	}
	there, failed := t.call(&Tx{dialect: SQLite, link: g.conn})
	g.conn.closeRows()
	if there && failed == nil {
		if _, err := g.conn.Exec(ctx, "RELEASE turn", nil); err != nil {
			return false, err
		}
		return true, nil
	}
	// On some errors, such as a full disk, SQLite rolls back the whole transaction. The savepoint does
	// not exist then.
	if _, err := g.conn.Exec(ctx, "ROLLBACK TO turn", nil); err != nil {
		return false, err
	}
	if _, err := g.conn.Exec(ctx, "RELEASE turn", nil); err != nil {
		return false, err
	}
	t.end(failed)
	return false, nil
}

// finish commits a batch and ends its turns: with nil, or with ErrIndeterminate if the outcome is
// unknown. It returns false, and ends none of them, if the commit surely failed.
func (g *group) finish(ran []*turn) bool {
	_, err := g.conn.Exec(context.Background(), "COMMIT", nil)
	err = commitError(err)
	if err != nil && !errors.Is(err, ErrIndeterminate) {
		return false // the turns run again separately: one of them may violate a deferred constraint
	}
	if err != nil {
		g.rollback()
	}
	for _, t := range ran {
		t.end(err)
	}
	return true
}

// commitError returns the classified error of a commit. A disk that fails during a commit gives
// ErrIndeterminate: the changes may be found later.
func commitError(err error) error {
	if err = Classify(err); errors.Is(err, ErrUnavailable) && !isBusy(err) {
		return &failure{ErrIndeterminate, err}
	}
	return err
}

// rollback closes open rows and rolls back the transaction, if one is open.
func (g *group) rollback() {
	g.conn.closeRows()
	// fails if SQLite has already rolled back
	_, _ = g.conn.Exec(context.Background(), "ROLLBACK", nil)
}
