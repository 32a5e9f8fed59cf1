package amqp

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// maxDepth limits the nesting of lists and tables in a header.
const maxDepth = 16

// toField returns v, a header of a broker.Message, as a value of an AMQP table, with its size in
// bytes without small change. It returns false for a type that a header cannot have, and for more
// than maxDepth levels.
func toField(v any, depth int) (field any, bytes int, ok bool) {
	if depth > maxDepth {
		return nil, 0, false
	}
	switch v := v.(type) {
	case nil, bool, int64, float64:
		return v, 8, true
	case string:
		return v, len(v) + 4, true
	case []byte:
		return v, len(v) + 4, true
	case []any:
		list := make([]any, len(v))
		for i := range v {
			item, size, ok := toField(v[i], depth+1)
			if !ok {
				return nil, 0, false
			}
			list[i], bytes = item, bytes+size+1
		}
		return list, bytes + 4, true
	case map[string]any:
		table := make(amqp.Table, len(v))
		for k := range v {
			item, size, ok := toField(v[k], depth+1)
			if !ok || len(k) > maxShort {
				return nil, 0, false
			}
			table[k], bytes = item, bytes+size+len(k)+2
		}
		return table, bytes + 4, true
	}
	return nil, 0, false
}

// fromField returns a value of an AMQP table as a header of a broker.Message: integers as int64,
// tables as map[string]any. It returns false for decimals and times, and for more than maxDepth
// levels. Such items of lists become nil, and of tables they are dropped.
func fromField(v any, depth int) (any, bool) {
	if depth > maxDepth {
		return nil, false
	}
	switch v := v.(type) {
	case nil, string, []byte, bool, float64:
		return v, true
	case float32:
		return float64(v), true
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i], _ = fromField(v[i], depth+1)
		}
		return list, true
	case amqp.Table:
		table := make(map[string]any, len(v))
		for k := range v {
			if item, ok := fromField(v[k], depth+1); ok {
				table[k] = item
			}
		}
		return table, true
	}
	n, ok := amqpconn.Integer(v)
	return n, ok
}
