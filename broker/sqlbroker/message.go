package sqlbroker

import (
	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// stored is a message as the database returns it, with its place in the queue. The pointers are nil
// in the only row of a claim without messages.
type stored struct {
	level, due, seq        *int64
	id                     *string
	generation, deliveries *int64
	priority, expires      *int64
	contentType            *string
	meta, body             []byte
}

// columns returns pointers to the fields of r for a Scan, in the order of the columns of claimed.
func (r *stored) columns() []any {
	return []any{
		&r.level, &r.due, &r.seq, &r.id, &r.generation, &r.deliveries, &r.priority, &r.expires, &r.contentType, &r.meta, &r.body,
	}
}

// fill sets the fields of m from r, which must hold a message. It never fails: headers that cannot
// be read are left out.
func (r *stored) fill(m *broker.Message) {
	m.ID, m.Generation, m.ContentType = *r.id, int(*r.generation), *r.contentType
	m.Priority, m.Expires, m.Body = int(*r.priority), sqlconn.Time(*r.expires), r.body
	if len(r.meta) > 0 {
		_ = messagecode.DecodeExtras(r.meta, m)
	}
}

// key returns the fairness key of the message.
func (r *stored) key() string {
	var m broker.Message
	if len(r.meta) > 0 {
		_ = messagecode.DecodeExtras(r.meta, &m)
	}
	return m.Key
}
