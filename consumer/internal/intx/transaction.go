package intx

import "github.com/swarmiji/swarmiji/tx"

// transaction is a transaction of a handler. It keeps the answers that the stores have got about
// it, so that each need not ask again. Use it for one call of SettleTx, since the handler may
// change the transaction after that.
type transaction struct {
	tx.Tx
	notes map[any]any
}

// Remembering returns t with a memory for one call of SettleTx.
func Remembering(t tx.Tx) tx.Tx { return &transaction{t, make(map[any]any)} }

// Note keeps a value.
func (t *transaction) Note(key, value any) { t.notes[key] = value }

// Noted returns the value that Note was called with, or nil.
func (t *transaction) Noted(key any) any { return t.notes[key] }

// Unwrap returns the transaction of the handler, for capability.As.
func (t *transaction) Unwrap() any { return t.Tx }
