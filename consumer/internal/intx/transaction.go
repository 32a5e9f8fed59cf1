package intx

import "github.com/swarmiji/swarmiji/tx"

// transaction is a transaction of a handler. It remembers the answers that the stores have got
// about it, so that each store need not ask again. Use it for one call of SettleTx, since the
// handler may change the transaction after that.
type transaction struct {
	tx.Tx
	notes map[any]any
}

// Remembering wraps t for one call of SettleTx. Stores can keep values in it with Note and read
// them with Noted.
func Remembering(t tx.Tx) tx.Tx { return &transaction{t, make(map[any]any)} }

// Note stores value under key.
func (t *transaction) Note(key, value any) { t.notes[key] = value }

// Noted returns the value that Note has stored under key, or nil.
func (t *transaction) Noted(key any) any { return t.notes[key] }

// Unwrap returns the transaction of the handler, for capability.As.
func (t *transaction) Unwrap() any { return t.Tx }
