package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

const (
	// deadPage is the number of dead letters that a scan reads at once.
	deadPage = 50
	// trimPart: a Broker removes the dead letters above the limits after each 1/trimPart of DeadMax
	// letters that it has put.
	trimPart = 100
)

// deadCount counts the dead letters that this Broker has put in a queue.
type deadCount struct{ put atomic.Int64 }

// PutDead implements [broker.DeadLetterer]. It creates the queue if it does not exist. The same
// letter put twice is two letters. It waits for the database. It may also remove letters above the
// limits; errors of that are ignored.
//
// Returns ErrMalformed or ErrTooLarge if the message cannot be stored, and ErrMalformed for an
// invalid queue name. Returns ErrClosed after Close, and errors of the database.
func (b *Broker) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	if err := b.checkOpen(queue); err != nil {
		return err
	}
	meta, err := b.check(d.Message)
	if err != nil {
		return wrap(err, "put a dead letter in", queue)
	}
	q, err := b.ensureKnown(ctx, queue)
	if err != nil {
		return wrap(err, "put a dead letter in", queue)
	}
	d = d.Normalized()
	m := d.Message
	_, err = b.exec(ctx, "", b.text.putDead, q.id, sqlconn.Micros(d.At), []byte(d.Reason), []byte(d.Stack), int64(d.Attempts),
		m.ID, int64(m.Generation), int64(m.Priority), sqlconn.Micros(m.Expires), m.ContentType, meta, body(m))
	if err != nil {
		return wrap(err, "put a dead letter in", queue)
	}
	b.trimSoon(ctx, q)
	return nil
}

// trimSoon counts a letter that was put. It applies the limits after the first letter and after
// each hundredth part of DeadMax, and then waits for the database. It ignores errors: the limits
// are applied again after the next part, and by each read.
func (b *Broker) trimSoon(ctx context.Context, q *queue) {
	n := q.dead.put.Add(1)
	if every := max(1, b.cfg.DeadMax/trimPart); n%int64(every) == 1%int64(every) {
		_ = b.trim(ctx, q)
	}
}

// trim removes the dead letters above the limits of age and number in one transaction. It adds
// their number to the queue's count of dropped letters. Without limits it does nothing. It waits
// for the database and returns its errors.
func (b *Broker) trim(ctx context.Context, q *queue) error {
	if b.cfg.DeadMax < 0 && b.cfg.DeadTTL < 0 {
		return nil
	}
	return b.update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		var many, old int64
		var err error
		if b.cfg.DeadMax > 0 {
			if many, err = tx.Exec(ctx, b.text.manyDead, q.id, b.cfg.DeadMax); err != nil {
				return err
			}
		}
		if b.cfg.DeadTTL > 0 {
			if old, err = tx.Exec(ctx, b.text.oldDead, q.id, b.cfg.DeadTTL.Microseconds()); err != nil {
				return err
			}
		}
		if many+old > 0 {
			_, err = tx.Exec(ctx, b.text.countDead, q.id, many+old)
		}
		return err
	})
}

// ScanDead implements [broker.DeadLetterer]. It first removes the letters above the limits. It
// shows the letters that exist at that time in pages, and removes those that fn chose after each
// page. No transaction is open during fn. It waits for the database.
//
// Returns nil after the last letter and when fn returns DeadStop. Returns ErrNoQueue if the queue
// does not exist, ErrMalformed for an invalid name, ErrClosed after Close, and errors of the
// database. If ctx ends it returns ctx's cause; letters that fn chose before are removed
// nevertheless.
func (b *Broker) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	q, err := b.queue(ctx, queue)
	if err == nil {
		err = b.trim(ctx, q)
	}
	if err != nil {
		return wrap(err, "scan the dead letters of", queue)
	}
	var last int64
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, b.text.lastDead, q.id).Scan(&last)
	})
	for from, more := int64(0), true; err == nil && more; {
		from, more, err = b.scanPage(ctx, q, from, last, fn)
	}
	return wrap(err, "scan the dead letters of", queue)
}

// letter is a dead letter with its sequence number in the database.
type letter struct {
	seq  int64
	dead broker.Dead
}

// scanPage shows the letters of one page to fn: the first deadPage letters after from, up to last,
// both sequence numbers. Then it removes those that fn chose. It returns the number of the last
// letter that it has shown, and whether the scan continues.
//
// It waits for the database and returns its errors. If ctx ends it shows no further letter, removes
// the chosen ones, and returns ctx's cause.
func (b *Broker) scanPage(ctx context.Context, q *queue, from, last int64, fn func(*broker.Dead) broker.DeadAction) (int64, bool, error) {
	page, err := b.readDead(ctx, q, b.text.readDead, from, last, deadPage)
	if err != nil {
		return from, false, err
	}
	return b.show(ctx, q, page, fn)
}

// ScanDeadID implements [broker.DeadFinder]. It reads the letters with one statement, which
// compares the ids of all letters of the queue. It removes those that fn chose with another one. No
// transaction is open during fn. Otherwise it is like ScanDead.
func (b *Broker) ScanDeadID(ctx context.Context, queue, id string, fn func(*broker.Dead) broker.DeadAction) error {
	q, err := b.queue(ctx, queue)
	if err == nil {
		err = b.trim(ctx, q)
	}
	if err == nil && messagecode.ValidID(id) {
		var found []letter
		if found, err = b.readDead(ctx, q, b.text.deadByID, id); err == nil {
			_, _, err = b.show(ctx, q, found, fn)
		}
	}
	return wrap(err, "find dead letters of", queue)
}

// dropTime limits the removal of chosen letters after the end of the caller's ctx.
const dropTime = 5 * time.Second

// show shows letters to fn and removes those that fn chose. It returns the number of the last
// letter that it has shown, and whether a scan continues after a page like this one. It waits for
// the database and returns its errors. If ctx ends it shows no further letter and removes the
// chosen ones, for which it waits up to dropTime. It returns ctx's cause if letters are left.
func (b *Broker) show(ctx context.Context, q *queue, page []letter, fn func(*broker.Dead) broker.DeadAction) (from int64, more bool, err error) {
	var remove [][]any
	more = len(page) == deadPage
	for i := range page {
		if err = context.Cause(ctx); err != nil {
			break
		}
		from = page[i].seq
		action := fn(&page[i].dead)
		if action == broker.DeadRemove {
			remove = append(remove, []any{q.id, from})
		}
		if action == broker.DeadStop {
			more = false
			break
		}
	}
	dropping := ctx
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		dropping, cancel = context.WithTimeout(context.WithoutCancel(ctx), dropTime)
		defer cancel()
	}
	return from, more && err == nil, errors.Join(err, b.dropDead(dropping, remove))
}

// readDead returns the letters of q that a query with these further arguments selects. Headers that
// cannot be read are left out. It changes nothing. It waits for the database and returns its
// errors.
func (b *Broker) readDead(ctx context.Context, q *queue, query string, args ...any) (page []letter, err error) {
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		page, err = readLetters(ctx, tx, q, query, args)
		return err
	})
	return page, err
}

// readLetters reads, in the transaction tx, the letters of q that a query with the further
// arguments args selects. Headers that cannot be read are left out. Returns errors of the database.
func readLetters(ctx context.Context, tx *sqlconn.Tx, q *queue, query string, args []any) (page []letter, err error) {
	rows, err := tx.Query(ctx, query, append([]any{q.id}, args...)...)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var l letter
		var at, attempts, generation, priority, expires int64
		var reason, stack, meta []byte
		m := &broker.Message{}
		err := rows.Scan(&l.seq, &at, &reason, &stack, &attempts, &m.ID, &generation, &priority, &expires, &m.ContentType, &meta, &m.Body)
		if err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		m.Generation, m.Priority, m.Expires = int(generation), int(priority), sqlconn.Time(expires)
		if len(meta) > 0 {
			_ = messagecode.DecodeExtras(meta, m)
		}
		l.dead = broker.Dead{
			Message: m, Queue: q.name, Reason: string(reason), Stack: string(stack), Attempts: int(attempts), At: sqlconn.Time(at),
		}
		page = append(page, l)
	}
	return page, errors.Join(rows.Err(), rows.Close())
}

// dropDead removes letters, each given as queue id and sequence number, in one transaction. Letters
// that do not exist are ignored. Without letters it does nothing. It waits for the database and
// returns its errors; after an error no letter is removed.
func (b *Broker) dropDead(ctx context.Context, letters [][]any) error {
	if len(letters) == 0 {
		return nil
	}
	return b.update(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		for _, l := range letters {
			if _, err := tx.Exec(ctx, b.text.dropDead, l...); err != nil {
				return err
			}
		}
		return nil
	})
}

// PurgeDead implements [broker.DeadLetterer]. It removes all letters with one statement and returns
// their number. It waits for the database. Returns ErrNoQueue if the queue does not exist,
// ErrMalformed for an invalid name, ErrClosed after Close, and errors of the database.
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	q, err := b.queue(ctx, queue)
	var n int64
	if err == nil {
		n, err = b.exec(ctx, "", b.text.purgeDead, q.id)
	}
	return int(n), wrap(err, "purge the dead letters of", queue)
}

// Audit implements [broker.Auditor]. It returns a sentence if the dead letters of queue are as many
// as Config.DeadMax, otherwise nil. It first removes letters above the limits, see Stats. For "" it
// returns a sentence for each setting of PostgreSQL with which a crash loses confirmed messages. It
// waits for the database.
//
// Returns ErrNoQueue if the queue does not exist, ErrMalformed for an invalid name, ErrClosed after
// Close, and errors of the database.
func (b *Broker) Audit(ctx context.Context, queue string) ([]string, error) {
	if queue == "" {
		notes, err := b.auditServer(ctx)
		return notes, wrap(err, "audit", "")
	}
	st, err := b.Stats(ctx, queue)
	if err != nil {
		return nil, err
	}
	if note := broker.AuditDead(queue, st.Dead, b.cfg.DeadMax); note != "" {
		return []string{note}, nil
	}
	return nil, nil
}

// auditServer returns a sentence for each setting of PostgreSQL with which a crash loses confirmed
// messages. A SQLite file has no such setting: it returns nil when the database has answered. It
// waits for the database and returns its errors.
func (b *Broker) auditServer(ctx context.Context) (notes []string, err error) {
	var fsync, commit string
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		if !b.postgres() {
			_, err := tx.Now(ctx)
			return err
		}
		return tx.Row(ctx, "SELECT current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit)
	})
	if fsync == "off" {
		notes = append(notes, "fsync is off: a crash of the machine can lose confirmed messages and damage the database; set fsync = on")
	}
	if commit == "off" {
		notes = append(notes, "synchronous_commit is off: a crash of the server can lose messages confirmed shortly before; set synchronous_commit = on")
	}
	return notes, err
}

// Stats implements [broker.Inspector]. All counters are exact. It counts the rows of the queue, so
// its time grows with their number. If dead letters are above the limits, it removes them and
// counts again. It waits for the database.
//
// Returns ErrNoQueue if the queue does not exist, ErrMalformed for an invalid name, ErrClosed after
// Close, and errors of the database.
func (b *Broker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	q, err := b.queue(ctx, queue)
	if err != nil {
		return broker.Stats{}, wrap(err, "stats of", queue)
	}
	st, oldest, err := b.stats(ctx, q)
	if err == nil && (b.cfg.DeadMax > 0 && st.Dead > b.cfg.DeadMax || b.cfg.DeadTTL > 0 && oldest >= b.cfg.DeadTTL) {
		if err = b.trim(ctx, q); err == nil {
			st, _, err = b.stats(ctx, q)
		}
	}
	return st, wrap(err, "stats of", queue)
}

// stats counts the messages of a queue. It also returns the age of its oldest dead letter, 0
// without one. It changes nothing. It waits for the database and returns its errors.
func (b *Broker) stats(ctx context.Context, q *queue) (st broker.Stats, oldest time.Duration, err error) {
	var ready, held, delayed, dead, dropped, age, since int64
	err = b.view(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, q.text.stats, q.id).Scan(&ready, &held, &delayed, &dead, &dropped, &age, &since)
	})
	st = broker.Stats{
		Ready: int(ready), Held: int(held), Delayed: int(delayed), Dead: int(dead), DeadDropped: int(dropped), Oldest: sqlconn.Time(since),
	}
	return st, time.Duration(age) * time.Microsecond, err
}

// purgeChunk is the number of messages that one transaction of Purge removes.
const purgeChunk = 5000

// Purge implements [broker.Inspector]. It removes the ready messages, up to 5,000 in a transaction,
// and returns their number. Delayed and held messages stay. It waits for the database.
//
// Returns ErrNoQueue if the queue does not exist, ErrMalformed for an invalid name, ErrClosed after
// Close, and errors of the database. After an error the number is that of the messages that are
// removed already.
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	q, err := b.queue(ctx, queue)
	if err != nil {
		return 0, wrap(err, "purge", queue)
	}
	for total := 0; ; {
		n, err := b.exec(ctx, "", q.text.purge, q.id, purgeChunk)
		total += int(n)
		if err != nil || n < purgeChunk {
			return total, wrap(err, "purge", queue)
		}
	}
}

// errNotFound returns ErrNotFound for an id.
func errNotFound(id string) error { return fmt.Errorf("%w: %.128q", broker.ErrNotFound, id) }
