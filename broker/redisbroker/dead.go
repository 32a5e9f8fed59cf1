package redisbroker

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"math"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

const (
	// firstDeadChunk is the number of dead letters that the first call of a scan reads. Each further
	// call reads up to twice as many.
	firstDeadChunk = 4
	maxDeadChunk   = 100
	// deadChunkBytes is the approximate number of bytes that one call reads.
	deadChunkBytes = 4 << 20
)

// deadArgs returns the script arguments of the dead letter d, normalized, besides its message:
// reason, stack, attempts, time, and the limits of age and number. A zero At is 0, for which the
// script uses the server's time. See deadletter in lua/lib.lua.
func (b *Broker) deadArgs(d broker.Dead) []any {
	at := max(0, unixMicro(d.At))
	d = d.Normalized()
	return []any{d.Reason, d.Stack, min(d.Attempts, math.MaxInt32), at, b.deadAge(), max(0, b.cfg.DeadMax)}
}

// deadAge returns the maximum age of a dead letter in microseconds. 0: no limit.
func (b *Broker) deadAge() int64 { return max(0, b.cfg.DeadTTL.Microseconds()) }

// PutDead implements [broker.DeadLetterer]. One script stores the letter, drops letters beyond the
// limits of age and number, and creates the queue if it does not exist. It waits for the server and
// for the replicas of Config.WaitReplicas.
//
// Returns ErrMalformed if the message or the queue name is not valid, ErrTooLarge if the message is
// too large, ErrClosed after Close.
func (b *Broker) PutDead(ctx context.Context, queue string, d broker.Dead) error {
	q, err := b.open(queue)
	if err != nil {
		return err
	}
	value, err := b.encode(d.Message)
	if err != nil {
		return wrap(err, "dead-letter in", queue)
	}
	args := append([]any{keyOf(d.Message.ID, d.Message.Generation), value}, b.deadArgs(d)...)
	_, err = q.eval(ctx, b.write, b.scripts.putDead, args...)
	return wrap(err, "dead-letter in", queue)
}

// ScanDead implements [broker.DeadLetterer]. It reads the letters in chunks, oldest first, and
// shows at most as many as existed at the first read. Those of a chunk for which fn returned
// DeadRemove are removed after fn has seen the whole chunk. Letters that are equal byte for byte
// are shown once if the first one is kept. It waits for the server.
//
// Returns ErrNoQueue if the queue does not exist, ErrMalformed if its name is not valid, ctx's
// cause if ctx ends.
func (b *Broker) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	q, err := b.open(queue)
	if err != nil {
		return err
	}
	s := deadScan{q: q, fn: fn, left: -1, size: firstDeadChunk, seen: make(map[uint64]struct{}), seed: maphash.MakeSeed()}
	for err == nil && !s.over {
		err = s.showChunk(ctx)
	}
	return wrap(err, "scan the dead letters of", queue)
}

// deadScan is a scan in progress. The letters of the list have no ids, so the scan counts
// positions. If another process removed letters before its position, it searches for the last
// letter that it kept. It skips letters that it has shown already.
type deadScan struct {
	q    *queue
	fn   func(*broker.Dead) broker.DeadAction
	next int    // position of the next letter
	last string // the letter before it
	left int    // number of letters still to show; -1: not known yet
	over bool
	size int // size of the next chunk
	seed maphash.Seed
	// hashes of the letters that were shown and kept; equal letters are shown once
	seen map[uint64]struct{}
}

// showChunk reads the next letters, calls fn with each that was not shown before, and then
// removes those for which fn returned DeadRemove. It sets s.over after the last letter or
// DeadStop, and chooses the size of the next chunk.
//
// If ctx ends it shows no further letter and returns ctx's cause. The removal is sent even then.
// Returns ErrNoQueue if the queue does not exist. It waits for the server.
func (s *deadScan) showChunk(ctx context.Context) error {
	b := s.q.b
	size := s.size
	v, err := s.q.eval(ctx, b.write, b.scripts.dead, s.next, s.next+size-1, s.last, b.deadAge())
	if err != nil {
		return err
	}
	answer, status, err := parseAnswer(v)
	switch {
	case err != nil:
		return err
	case status == noQueue:
		return broker.ErrNoQueue
	}
	if s.left < 0 {
		s.left = int(number(answer, 1))
	}
	letters, bytes := len(answer)-3, 0
	for i := range letters {
		bytes += len(text(answer, i+3))
	}
	mean := bytes/max(1, letters) + 1
	s.size = max(1, min(2*size, maxDeadChunk, deadChunkBytes/mean))
	var gone []any
	s.next = int(number(answer, 2))
	from, first := s.next, s.next
	for i := 3; i < len(answer) && !s.over; i++ {
		letter := text(answer, i)
		hash := maphash.String(s.seed, letter)
		action := broker.DeadKeep
		if _, shown := s.seen[hash]; !shown {
			if s.left == 0 {
				break
			}
			if err = context.Cause(ctx); err != nil {
				break
			}
			s.left--
			d := parseDead(s.q.name, letter)
			action = s.fn(&d)
		}
		if action == broker.DeadRemove {
			if len(gone) == 0 {
				first = from
			}
			gone = append(gone, letter)
		} else {
			s.seen[hash] = struct{}{}
			s.next++
			s.last = letter
		}
		s.over = action == broker.DeadStop
		from++
	}
	s.over = s.over || s.left == 0 || letters < size
	if len(gone) == 0 {
		return err
	}
	dropping := ctx
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		dropping, cancel = context.WithTimeout(context.WithoutCancel(ctx), dropTime)
		defer cancel()
	}
	if _, dropErr := s.q.eval(dropping, b.write, b.scripts.dropDead, append([]any{first}, gone...)...); dropErr != nil {
		return dropErr
	}
	return err
}

// noQueueOr returns err, or ErrNoQueue if err is nil.
func noQueueOr(err error) error {
	if err != nil {
		return err
	}
	return broker.ErrNoQueue
}

// dropTime limits the removal of chosen letters after the end of the caller's ctx.
const dropTime = 5 * time.Second

// marked is added to the microseconds of a letter that has a stack or attempts. A reader of an
// older version reads a time one second later, and the stack as the end of the reason.
const marked = 1 << 20

// parseDead returns the dead letter in a stored text. A damaged text becomes a letter that has the
// text as its body.
//
// The text holds seconds and microseconds, 4 bytes each; the lengths of key and notes, 2 and 4
// bytes; the key; the notes; the stored message. The notes are the reason. In a marked letter they
// continue with the stack, then the attempts and the length of the stack, 4 bytes each.
func parseDead(queue, letter string) broker.Dead {
	const fixed = 14
	m := &broker.Message{}
	var types string
	if len(letter) < fixed {
		decode(m, "", letter, &types)
		return broker.Dead{Message: m, Queue: queue}
	}
	h := []byte(letter[:fixed])
	seconds, micros := int64(binary.BigEndian.Uint32(h)), int64(binary.BigEndian.Uint32(h[4:]))
	key, notes := int64(binary.BigEndian.Uint16(h[8:])), int64(binary.BigEndian.Uint32(h[10:]))
	rest := letter[fixed:]
	if key+notes > int64(len(rest)) {
		decode(m, "", letter, &types)
		return broker.Dead{Message: m, Queue: queue}
	}
	decode(m, rest[:key], rest[key+notes:], &types)
	d := broker.Dead{Message: m, Reason: rest[key : key+notes], Queue: queue}
	if micros >= marked {
		micros -= marked
		d.Reason, d.Stack, d.Attempts = parseNotes(d.Reason)
	}
	d.At = time.Unix(seconds, micros*1000)
	return d
}

// parseNotes splits the notes of a marked letter into reason, stack and attempts. Damaged notes are
// returned as the reason.
func parseNotes(notes string) (reason, stack string, attempts int) {
	text := len(notes) - 8
	if text < 0 {
		return notes, "", 0
	}
	numbers := []byte(notes[text:])
	length := int64(binary.BigEndian.Uint32(numbers[4:]))
	if length > int64(text) {
		return notes, "", 0
	}
	cut := text - int(length)
	return notes[:cut], notes[cut:text], int(binary.BigEndian.Uint32(numbers))
}

// PurgeDead implements [broker.DeadLetterer]. It removes the oldest letters, up to 500 with each
// call to the server, and at most as many as existed when it began. After an error it returns the
// number removed so far too. Returns ErrNoQueue if the queue does not exist.
func (b *Broker) PurgeDead(ctx context.Context, queue string) (int, error) {
	st, err := b.Stats(ctx, queue)
	if err != nil {
		return 0, err
	}
	q, err := b.open(queue)
	if err != nil {
		return 0, err
	}
	total := 0
	for total < st.Dead {
		v, err := q.eval(ctx, b.conn.Eval, b.scripts.purgeDead, min(purgeChunk, st.Dead-total))
		if err != nil {
			return total, wrap(err, "purge the dead letters of", queue)
		}
		answer, status, err := parseAnswer(v)
		if err != nil || status == noQueue {
			return total, wrap(noQueueOr(err), "purge the dead letters of", queue)
		}
		if number(answer, 1) == 0 {
			break
		}
		total += int(number(answer, 1))
	}
	return total, nil
}
