package redisbroker

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// deadChunk is how many dead letters one call takes.
const deadChunk = 100

// ListDead implements [broker.DeadLetterer]. Long lists are read a hundred at a time: when others requeue or purge meanwhile,
// some may be left out.
func (b *Broker) ListDead(ctx context.Context, queue string, n int) ([]broker.Dead, error) {
	q, err := b.open(queue)
	if err != nil {
		return nil, err
	}
	var dead []broker.Dead
	for first := true; first || len(dead) < n; first = false {
		from := len(dead)
		to := min(n, from+deadChunk) - 1
		if n <= 0 { // only whether the queue exists
			from, to = 1, 0
		}
		v, err := q.eval(ctx, b.conn.Eval, b.scripts.dead, from, to)
		if err != nil {
			return nil, wrap(err, "list the dead letters of", queue)
		}
		answer, status, err := take(v)
		if err != nil || status == noQueue {
			return nil, wrap(noQueueOr(err), "list the dead letters of", queue)
		}
		for _, letter := range answer[1:] {
			s, _ := letter.(string)
			dead = append(dead, parseDead(queue, s))
		}
		if len(answer)-1 < deadChunk {
			break
		}
	}
	return dead, nil
}

func noQueueOr(err error) error {
	if err != nil {
		return err
	}
	return broker.ErrNoQueue
}

// parseDead reads a dead letter: seconds and microseconds, 4 bytes each; the lengths of key and reason, 2 and 4 bytes; key,
// reason, and the stored message. What is damaged becomes a letter with these bytes as its body.
func parseDead(queue, letter string) broker.Dead {
	const fixed = 14
	m := &broker.Message{}
	var types string
	if len(letter) < fixed {
		decode(m, "", letter, &types)
		return broker.Dead{Message: m, Queue: queue}
	}
	h := []byte(letter[:fixed])
	at := time.Unix(int64(binary.BigEndian.Uint32(h)), int64(binary.BigEndian.Uint32(h[4:]))*1000)
	key, reason := int64(binary.BigEndian.Uint16(h[8:])), int64(binary.BigEndian.Uint32(h[10:]))
	rest := letter[fixed:]
	if key+reason > int64(len(rest)) {
		decode(m, "", letter, &types)
		return broker.Dead{Message: m, Queue: queue}
	}
	decode(m, rest[:key], rest[key+reason:], &types)
	return broker.Dead{Message: m, Reason: rest[key : key+reason], Queue: queue, At: at}
}

// RequeueDead implements [broker.DeadLetterer]. A letter whose next Generation the queue has already is counted, and is no
// second message.
func (b *Broker) RequeueDead(ctx context.Context, queue string, n int) (int, error) {
	q, err := b.open(queue)
	if err != nil {
		return 0, err
	}
	total := 0
	for first := true; first || total < n; first = false {
		want := max(0, min(deadChunk, n-total))
		answer, _, err := q.call(ctx, b.write, b.scripts.requeue, q.names.channels(), want)
		if err != nil {
			return total, wrap(err, "requeue the dead letters of", queue)
		}
		got := int(number(answer, 1))
		total += got
		if got < deadChunk {
			break
		}
	}
	return total, nil
}

// PurgeDead implements [broker.DeadLetterer]. It removes some hundreds at a time.
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
		answer, status, err := take(v)
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
