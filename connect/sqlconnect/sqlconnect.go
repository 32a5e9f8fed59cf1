// Package sqlconnect defines the type that selects the SQL client library of a program.
package sqlconnect

// Engine is the client library for one kind of database: pgconnect.Engine or sqliteconnect.Engine.
// Other implementations are not supported.
type Engine interface {
	// Schemes returns the URL schemes of the library.
	Schemes() []string
	// Unwrap returns the driver that the adapters use.
	Unwrap() any
}
