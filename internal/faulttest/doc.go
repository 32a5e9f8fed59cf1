// Package faulttest tests real processes with real faults. Producers and consumers (examples/soak)
// and private servers are killed, frozen, stopped and cut off. The ledger that the survivors wrote
// must obey the rules of internal/ledger. Most tests run with each engine listed in engine_test.go.
// The package has only test files.
package faulttest
